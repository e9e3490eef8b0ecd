#!/usr/bin/env python3
"""`from_pretrained` of compressed models, by `lmc.hf` and from `lmc mount`, beside the same models uncompressed.

    bench/run pretrained [--rounds N] [DIR …]       by default minilm and a Llama of 1.1 billion parameters in bf16

Each round loads the model in every way, each in a new process, the mount anew; what is mapped is read, a byte of each
page, so that the model is in memory. Imports are not measured. A ratio is that of one round, and medians over the
rounds count. The files are in the page cache, and transformers maps an uncompressed one: then nothing is copied, and
loading it takes hardly any time. Memory is the most that loading took besides what the process had before, with what it
maps; of the mount, that of its own process comes on top.
"""

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import inputs
import torch
from markdown import show
from mount import mounted
from transformers import LlamaConfig, LlamaForCausalLM

PROGRAM = """
import sys, time, zlib
import torch, transformers
if sys.argv[2] == "lmc.hf":
    import lmc.hf
of = transformers.AutoModelForCausalLM if sys.argv[3] == "causal" else transformers.AutoModel
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
with torch.device("meta"):
    of.from_config(transformers.AutoConfig.from_pretrained(sys.argv[1]))  # imports what defines the model

def memory(kind):
    return next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith(kind))

before = memory("VmRSS:")
open("/proc/self/clear_refs", "w").write("5")  # the peak begins anew
start = time.perf_counter()
model = of.from_pretrained(sys.argv[1])
for tensor in model.state_dict().values():
    tensor.contiguous().view(-1).view(torch.uint8)[::4096].sum()
seconds, peak = time.perf_counter() - start, memory("VmHWM:") - before
digest = 0
for tensor in model.state_dict().values():
    digest = zlib.crc32(tensor.contiguous().view(-1).view(torch.uint8).numpy(), digest)
print(seconds, peak, digest)
"""
WAYS = ("plain", "lmc.hf", "mount")


def made(folder: Path) -> Path:
    """A model of random bf16 weights."""
    shape = inputs.LARGE
    config = LlamaConfig(
        vocab_size=shape.vocabulary, hidden_size=shape.width, intermediate_size=shape.feed_forward,
        num_hidden_layers=shape.layers, num_attention_heads=32, num_key_value_heads=shape.shared * 32 // shape.width,
    )  # fmt: skip
    torch.manual_seed(1)
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    return folder


def load(way: str, folder: Path, kind: str) -> tuple[float, int, str]:
    """Seconds, bytes of memory, and what says whether the weights are the same."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, folder, way, kind], check=True, stdout=subprocess.PIPE, text=True
    )
    seconds, peak, digest = done.stdout.split()
    return float(seconds), int(peak), digest


def measure(lmc: str, name: str, model: Path, rounds: int, folder: Path) -> dict:
    packed, at = folder / "packed", folder / "mnt"
    shutil.copytree(model, packed, ignore=shutil.ignore_patterns("*.bin", "*.onnx"))
    at.mkdir(exist_ok=True)
    subprocess.run([lmc, "-q", "compress", "--rm", "-r", packed], check=True)
    kind = "causal" if "CausalLM" in (model / "config.json").read_text() else "other"
    places, found = {"plain": model, "lmc.hf": packed, "mount": at}, []
    for _ in range(rounds):
        with mounted(lmc, packed, at) as peak:
            loaded = {way: load(way, places[way], kind) for way in WAYS}
            if len({digest for _, _, digest in loaded.values()}) > 1:
                sys.exit(f"{model}: the weights differ: {loaded}")
            found.append((loaded, peak()))
    sizes = [sum(f.stat().st_size for f in where.rglob("*.safetensors*")) for where in (model, packed)]
    shutil.rmtree(packed)

    def middle(value) -> float:
        return statistics.median(value(loaded) for loaded, _ in found)

    return {
        "model": name,
        "MB": round(sizes[0] / 1e6),
        "compressed": sizes[1] / sizes[0],
        **{f"{way} s": middle(lambda r, way=way: r[way][0]) for way in WAYS},
        **{f"{way} / plain": middle(lambda r, way=way: r[way][0] / r["plain"][0]) for way in WAYS[1:]},
        **{f"{way} MiB": round(middle(lambda r, way=way: r[way][1]) / 2**20) for way in WAYS},
        "of the mount itself": round(max(peak for _, peak in found) / 2**20),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lmc", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.add_argument("models", nargs="*", type=Path, help="directories of models")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        models = {model.name: model for model in args.models}
        models = models or {"minilm": inputs.minilm().parent, "llama": made(folder / "llama")}
        rows = [measure(args.lmc, name, model, args.rounds, folder) for name, model in models.items()]
    show(rows, args.json)


if __name__ == "__main__":
    main()
