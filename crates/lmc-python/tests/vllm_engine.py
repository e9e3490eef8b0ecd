"""A small model, and engines of vLLM for it. As a program it prints tokens:

vllm_engine.py DIRECTORY WORKERS                 of an engine that was started on files
vllm_engine.py CONFIG_DIRECTORY WORKERS STORE    of one with step 1, after an update that fails, and with step 2

or saves files as step 2 of a store, says so, and waits instead of publishing them:

vllm_engine.py DIRECTORY publish STORE
"""

import contextlib
import json
import os
import signal
import sys
from pathlib import Path

os.environ.update(
    VLLM_PLUGINS="lmc",
    VLLM_CPU_KVCACHE_SPACE="1",
    VLLM_CPU_OMP_THREADS_BIND="nobind",
    VLLM_ENABLE_V1_MULTIPROCESSING="0",
    VLLM_ALLOW_INSECURE_SERIALIZATION="1",
    VLLM_NO_USAGE_STATS="1",
    HF_HUB_OFFLINE="1",
)

# Larger to measure pauses.
SIZE = int(os.environ.get("LMC_VLLM_SIZE", "64"))
# The smallest heads that vLLM takes on CPUs are of 32.
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "torch_dtype": "bfloat16",
    "hidden_size": SIZE,
    "intermediate_size": SIZE * 11 // 4,
    "num_hidden_layers": 2,
    "num_attention_heads": SIZE // 32,
    "num_key_value_heads": SIZE // 32,
    "vocab_size": SIZE * 8,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
}
PROMPTS = [[1, 2, 3, 4, 5, 6, 7], [100, 200, 300], [9] * 20]


def configure(directory: Path) -> Path:
    """A directory with a configuration, and no weights."""
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps(CONFIG))
    return directory


def weights(seed):
    """Random weights, by names of the checkpoint."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    hidden, inner, vocabulary = CONFIG["hidden_size"], CONFIG["intermediate_size"], CONFIG["vocab_size"]
    shapes = {"model.embed_tokens.weight": (vocabulary, hidden), "lm_head.weight": (vocabulary, hidden)}
    for layer in range(CONFIG["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        shapes |= {f"{prefix}self_attn.{name}_proj.weight": (hidden, hidden) for name in "qkvo"}
        shapes |= {f"{prefix}mlp.{name}_proj.weight": (inner, hidden) for name in ("gate", "up")}
        shapes[f"{prefix}mlp.down_proj.weight"] = (hidden, inner)
        shapes |= {f"{prefix}{name}_layernorm.weight": (hidden,) for name in ("input", "post_attention")}
    shapes["model.norm.weight"] = (hidden,)
    tensors = {}
    for name, shape in shapes.items():
        noise = torch.randn(shape, generator=generator)
        tensors[name] = (noise * 0.3 if len(shape) == 2 else 1 + noise * 0.1).to(torch.bfloat16)
    return tensors


def changed(tensors, seed, every=50):
    """Some elements of each tensor changed."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    out = {name: tensor.clone() for name, tensor in tensors.items()}
    for tensor in out.values():
        at = torch.randperm(tensor.numel(), generator=generator)[: tensor.numel() // every + 1]
        tensor.view(-1)[at] += (torch.randn(len(at), generator=generator) * 0.5).to(tensor.dtype)
    return out


def save(tensors, directory: Path) -> Path:
    """A directory that an engine starts on without a store."""
    from safetensors.torch import save_file

    save_file(tensors, configure(directory) / "model.safetensors", {"format": "pt"})
    return directory


def engine(directory, **options):
    """An engine in this process."""
    from vllm import LLM

    return LLM(
        str(directory),
        skip_tokenizer_init=True,
        enforce_eager=True,
        enable_prefix_caching=False,
        dtype="bfloat16",
        max_model_len=128,
        **options,
    )


def tokens(llm):
    """The tokens that it generates."""
    from vllm import SamplingParams

    sampling = SamplingParams(temperature=0, max_tokens=16, ignore_eos=True, detokenize=False)
    outputs = llm.generate([{"prompt_token_ids": ids} for ids in PROMPTS], sampling, use_tqdm=False)
    return [list(output.outputs[0].token_ids) for output in outputs]


def update(llm, **info):
    """Gets it to another version."""
    llm.start_weight_update()
    llm.update_weights({"update_info": info})
    llm.finish_weight_update()


def fail_once(worker):
    """Makes the last worker of several fail when it is to write weights, once."""
    model = worker.model_runner.get_model()
    load = model.load_weights

    def fails(_weights):
        model.load_weights = load
        raise RuntimeError("as asked")

    if worker.rank == worker.vllm_config.parallel_config.world_size - 1:
        model.load_weights = fails


def is_shared(worker):
    """Whether the copy of the weights that a worker has is in memory that it shares."""
    import lmc.vllm._copy

    begin = min(t.data_ptr() for t in lmc.vllm._copy.held[worker.model_runner.get_model()].tensors.values())
    for line in Path("/proc/self/maps").read_text().splitlines():
        low, high = (int(end, 16) for end in line.split()[0].split("-"))
        if low <= begin < high:
            return "/dev/shm/lmc-vllm-" in line
    return False


def say(value):
    """A line for the test."""
    print("tokens", json.dumps(value), flush=True)


if __name__ == "__main__":
    directory, workers, *store = sys.argv[1:]
    if workers == "publish":
        import lmc.sync
        from safetensors.torch import load_file

        tensors = load_file(Path(directory, "model.safetensors"))
        lmc.sync.Publisher(store[0]).save_part(tensors, step=2, rank=0, world_size=1)
        print("saved", flush=True)
        signal.pause()
    if not store:
        say(tokens(engine(directory, tensor_parallel_size=int(workers))))
        sys.exit()
    llm = engine(
        directory,
        tensor_parallel_size=int(workers),
        load_format="lmc",
        model_loader_extra_config={"store": store[0], "step": 1},
        weight_transfer_config={"backend": "lmc"},
    )
    say(tokens(llm))
    assert llm.collective_rpc(is_shared) == [int(workers) > 1] * int(workers)
    llm.collective_rpc(fail_once)
    try:
        update(llm, step=2)
    except Exception as e:
        say(tokens(llm) if "as asked" in str(e) else str(e))
    # Where a call failed on several workers vLLM 0.32.0 reads one answer: the next call ends with another.
    with contextlib.suppress(RuntimeError):
        llm.shutdown_weight_transfer_engine()
    update(llm, step=2, stage=True)
    # Not the newest one: other tests publish later ones.
    update(llm, step=2)
    say(tokens(llm))
