"""`from_pretrained` of compressed models: once `lmc.hf` is imported, they load as others do."""

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import lmc
import lmc.hf
import numpy as np
import pytest
import safetensors.torch
import torch
import transformers
from lmc.hf import _load
from torch_tensors import assert_same
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    BertConfig,
    BertModel,
    BertTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    modeling_utils,
)

TOKENS = torch.arange(16)[None]


def llama(seed=0, **options):
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=500, hidden_size=64, intermediate_size=128, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, **options,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


def bert(seed=0):
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=500, hidden_size=64, intermediate_size=128, num_hidden_layers=3, num_attention_heads=4,
        max_position_embeddings=64,
    )  # fmt: skip
    return BertModel(config).eval()


def compressed(folder):
    """Compresses the weights in a folder, and removes them."""
    subprocess.run([sys.executable, "-m", "lmc", "compress", "-q", "-r", "--rm", str(folder)], check=True)
    assert not list(folder.rglob("*.safetensors")) and list(folder.rglob("*.safetensors.lmc"))


def saved(model, folder, shard="50GB"):
    model.save_pretrained(folder, max_shard_size=shard)
    return folder


def assert_equal_models(found, expected):
    assert type(found) is type(expected) and not found.training
    assert_same(found.state_dict(), expected.state_dict())
    with torch.inference_mode():
        assert torch.equal(found(TOKENS)[0], expected(TOKENS)[0])


@pytest.mark.parametrize("shard", ["50GB", "100KB"])
@pytest.mark.parametrize(("make", "auto"), [(llama, AutoModelForCausalLM), (bert, AutoModel)])
def test_models(tmp_path, make, auto, shard):
    model = make()
    saved(model, tmp_path / "m", shard)
    compressed(tmp_path / "m")
    assert (tmp_path / "m" / "model.safetensors.index.json").exists() == (shard == "100KB")
    assert_equal_models(auto.from_pretrained(tmp_path / "m"), model)
    assert_equal_models(type(model).from_pretrained(str(tmp_path / "m"), use_safetensors=True), model)


def test_options(tmp_path):
    folder = saved(llama(tie_word_embeddings=True).bfloat16(), tmp_path / "m" / "sub")
    load, plain = AutoModelForCausalLM.from_pretrained, shutil.copytree(folder, tmp_path / "plain")
    model = load(plain, dtype="auto")
    compressed(folder)
    found = load(folder, dtype="auto")
    assert_equal_models(found, model)
    assert found.lm_head.weight.data_ptr() == found.model.embed_tokens.weight.data_ptr()
    for options in (
        {"dtype": torch.float32}, {"dtype": torch.float16}, {"device_map": "cpu", "dtype": torch.bfloat16},
        {"device_map": {"": "cpu"}},
    ):  # fmt: skip
        assert_equal_models(load(folder, **options), load(plain, **options))
    assert_equal_models(load(tmp_path / "m", subfolder="sub", dtype="auto"), model)
    _, info = load(folder, output_loading_info=True)
    assert not any(info.values())


def test_variants(tmp_path):
    saved(bert(1), tmp_path / "m")
    bert(2).save_pretrained(tmp_path / "m", variant="second")
    compressed(tmp_path / "m")
    assert_equal_models(AutoModel.from_pretrained(tmp_path / "m"), bert(1))
    assert_equal_models(AutoModel.from_pretrained(tmp_path / "m", variant="second"), bert(2))


@pytest.mark.parametrize("which", [0, 1])
def test_some_shards_are_not_compressed(tmp_path, which):
    """Whether the first one is or not."""
    model = bert()
    saved(model, tmp_path / "m", "300KB")
    kept = sorted((tmp_path / "m").glob("*.safetensors"))[which].name
    shutil.copy(tmp_path / "m" / kept, tmp_path)
    compressed(tmp_path / "m")
    (tmp_path / "m" / f"{kept}.lmc").unlink()
    shutil.move(tmp_path / kept, tmp_path / "m")
    assert_equal_models(AutoModel.from_pretrained(tmp_path / "m"), model)


def test_weights_on_the_disk(tmp_path):
    model = llama()
    compressed(saved(model, tmp_path / "m"))
    parts = {"model.embed_tokens": "cpu", "model.layers": "disk", "model.norm": "cpu", "lm_head": "cpu"}
    parts["model.rotary_emb"] = "cpu"
    found = AutoModelForCausalLM.from_pretrained(tmp_path / "m", device_map=parts, offload_folder=tmp_path / "off")
    with torch.inference_mode():
        assert torch.equal(found(TOKENS).logits, model(TOKENS).logits)


def test_deltas_of_what_lies_beside(tmp_path):
    model = llama().bfloat16()
    for step in range(3):
        saved(model, tmp_path / str(step))
        with torch.no_grad():
            model.lm_head.weight[:50] *= 1.01
    folder = tmp_path / "m"
    shutil.copytree(tmp_path / "2", folder)
    base = tmp_path / "0" / "model.safetensors"
    middle = tmp_path / "1" / "model.safetensors"
    last = folder / "model.safetensors"
    lmc.compress_file(last, f"{last}.lmc", base=middle)
    lmc.compress_file(middle, folder / "middle.lmc", base=base)
    shutil.copy(base, folder / "of another name")
    last.unlink()
    expected = AutoModelForCausalLM.from_pretrained(tmp_path / "2", dtype="auto")
    assert_equal_models(AutoModelForCausalLM.from_pretrained(folder, dtype="auto"), expected)
    # In the hub's cache, all are links.
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "of-a-revision"
    shutil.move(folder, blobs)
    snapshot.mkdir(parents=True)
    for name in ("config.json", "model.safetensors.lmc"):
        (snapshot / name).symlink_to(os.path.relpath(blobs / name, snapshot))
    assert_equal_models(AutoModelForCausalLM.from_pretrained(snapshot, dtype="auto"), expected)
    (blobs / "of another name").unlink()
    with pytest.raises(lmc.BaseMismatchError, match=r"model\.safetensors"):
        AutoModelForCausalLM.from_pretrained(snapshot, dtype="auto")


@pytest.fixture
def cache(tmp_path):
    """A model in a cache of the hub, and a function that replaces its blobs by compressed ones."""
    repository = tmp_path / "hub" / "models--me--small"

    def make(model, revision, shard="50GB"):
        folder = saved(model, tmp_path / revision, shard)
        snapshot, blobs = repository / "snapshots" / revision, repository / "blobs"
        snapshot.mkdir(parents=True)
        for directory in (blobs, repository / "refs"):
            directory.mkdir(exist_ok=True)
        for path in folder.iterdir():
            shutil.copy(path, blobs / f"{revision}-{path.name}")
            (snapshot / path.name).symlink_to(f"../../blobs/{revision}-{path.name}")
        (repository / "refs" / "main").write_text(revision)
        return snapshot

    return make


@pytest.mark.parametrize("shard", ["50GB", "100KB"])
@pytest.mark.parametrize("renamed", [True, False])
def test_the_cache_of_the_hub(tmp_path, cache, shard, renamed):
    """Whether links have the names of `.lmc` files or, as after `lmc hub compress`, those of the originals."""
    first, second = bert(1), bert(2)
    for model, revision in ((first, "a" * 40), (second, "b" * 40)):
        snapshot = cache(model, revision, shard)
        for link in list(snapshot.glob("*.safetensors")):
            blob = link.resolve()
            lmc.compress_file(blob, f"{blob}.lmc")
            blob.unlink()
            if renamed:
                link.unlink()
                (snapshot / f"{link.name}.lmc").symlink_to(f"../../blobs/{blob.name}.lmc")
            else:
                blob.symlink_to(f"{blob.name}.lmc")
    options = {"cache_dir": tmp_path / "hub", "local_files_only": True}
    for name in ("me/small", snapshot):
        found = AutoModel.from_pretrained(name, **options)
        assert_equal_models(found, second)
        assert found.name_or_path == str(name)
    assert_equal_models(AutoModel.from_pretrained("me/small", revision="a" * 40, **options), first)
    with pytest.raises(OSError, match="cached files"):
        AutoModel.from_pretrained("me/other", **options)


@pytest.mark.parametrize("shard", ["50GB", "100KB"])
def test_damage_is_an_error_that_names_file_and_tensor(tmp_path, shard):
    compressed(saved(llama(), tmp_path / "m", shard))
    path = next(p for p in sorted((tmp_path / "m").glob("*.lmc")))
    name = "model.embed_tokens.weight" if shard == "100KB" else None
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 1
    path.write_bytes(data)
    with pytest.raises(lmc.DamagedError) as raised:
        AutoModelForCausalLM.from_pretrained(tmp_path / "m")
    with lmc.open(path) as f:
        names = f.keys()
    assert str(path) in str(raised.value)
    assert raised.value.tensor in names and name in (None, raised.value.tensor)
    assert raised.value.tensor in str(raised.value)


def test_other_directories_are_as_before(tmp_path):
    """What has no compressed files never reaches `lmc`."""
    model = llama()
    saved(model, tmp_path / "plain")
    saved(model, tmp_path / "shards", "100KB")
    (tmp_path / "none").mkdir()
    shutil.copy(tmp_path / "plain" / "config.json", tmp_path / "none")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(lmc, "File", None)
        patched.setattr("lmc.torch._file.File", None)
        for folder in ("plain", "shards"):
            assert_equal_models(AutoModelForCausalLM.from_pretrained(tmp_path / folder), model)
        with pytest.raises(OSError, match=r"no file named .*model\.safetensors"):
            AutoModelForCausalLM.from_pretrained(tmp_path / "none")
    (tmp_path / "none" / "pytorch_model.bin.lmc").write_bytes(lmc.compress(b"of other weights"))
    with pytest.raises(lmc.UnsupportedError, match=r"pytorch_model\.bin\.lmc, and lmc\.hf loads safetensors only"):
        AutoModelForCausalLM.from_pretrained(tmp_path / "none")
    # An original beside its compressed form comes first.
    lmc.compress_file(tmp_path / "plain" / "model.safetensors", tmp_path / "none" / "model.safetensors.lmc")
    saved(llama(5), tmp_path / "none")
    assert_equal_models(AutoModelForCausalLM.from_pretrained(tmp_path / "none"), llama(5))


def test_another_transformers_is_an_error_that_names_its_version(tmp_path, monkeypatch):
    compressed(saved(bert(), tmp_path / "m"))
    plain = saved(bert(), tmp_path / "plain")
    kind = modeling_utils.PreTrainedModel
    monkeypatch.setattr(kind, "from_pretrained", kind.__dict__["from_pretrained"])
    monkeypatch.setattr(modeling_utils, "_get_resolved_checkpoint_files", lambda path: path)
    assert "transformers_explicit_filename" in _load._missing()
    monkeypatch.delattr(modeling_utils, "_get_resolved_checkpoint_files")
    assert "_get_resolved_checkpoint_files" in _load._missing()
    _load.install.__wrapped__()
    for name in (tmp_path / "m", str(tmp_path / "m")):
        with pytest.raises(lmc.UnsupportedError, match=transformers.__version__):
            AutoModel.from_pretrained(name)
    monkeypatch.undo()
    assert_equal_models(AutoModel.from_pretrained(plain), bert())


def test_each_block_is_decoded_once(tmp_path, monkeypatch):
    """All of a small model is one read."""
    reads = []
    read = _load.Shard._new
    monkeypatch.setattr(_load.Shard, "_new", lambda self, entries: reads.append(len(entries)) or read(self, entries))
    model = llama()
    compressed(saved(model, tmp_path / "m"))
    assert_equal_models(AutoModelForCausalLM.from_pretrained(tmp_path / "m"), model)
    assert reads == [len(model.state_dict())]


@pytest.mark.parametrize(("group", "waiting"), [(1, 0), (50_000, 0), (50_000, 100_000), (1 << 20, 1 << 20)])
def test_tensors_in_any_order(tmp_path, monkeypatch, group, waiting):
    monkeypatch.setattr("lmc.hf._shard._GROUP", group)
    monkeypatch.setattr("lmc.hf._shard._MAX_WAITING", waiting)
    state = llama().state_dict()
    lmc.torch.save_file(state, tmp_path / "m.lmc")
    names = sorted(state, key=lambda name: name[::-1])
    with _load.Shard(str(tmp_path / "m.lmc")) as f:
        assert_same({name: f.get_tensor(name) for name in names}, state)
        again = {name: f.get_slice(name)[...] for name in reversed(names)}
        assert_same(again, state)
        assert sum(tensor.nbytes for tensor in f._waiting.values()) <= waiting
        last = f.get_tensor("lm_head.weight")
        assert last.data_ptr() != again["lm_head.weight"].data_ptr()
        assert torch.equal(f.get_slice("lm_head.weight")[3:5, ::2], last[3:5, ::2])
        with pytest.raises(lmc.NotFoundError):
            f.get_tensor("other")
    with pytest.raises(lmc.UsageError, match="closed"):
        f.get_tensor("lm_head.weight")


def test_threads_share_a_shard(tmp_path):
    state = llama().state_dict()
    lmc.torch.save_file(state, tmp_path / "m.lmc")
    with _load.Shard(str(tmp_path / "m.lmc")) as f, ThreadPoolExecutor(4) as pool:
        for _ in range(3):
            assert_same(dict(zip(state, pool.map(f.get_tensor, state), strict=True)), state)


def test_damage_is_found_where_it_is(tmp_path):
    """Tensors that are read together with a damaged one are read alone."""
    state = {f"{i}": torch.full((1 << 18,), float(i)) + torch.rand(1 << 18) for i in range(6)}
    lmc.torch.save_file(state, tmp_path / "m.lmc")
    data = bytearray((tmp_path / "m.lmc").read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / "m.lmc").write_bytes(data)
    found, damaged = {}, []
    with _load.Shard(str(tmp_path / "m.lmc")) as f:
        for name in state:
            try:
                found[name] = f.get_tensor(name)
            except lmc.DamagedError as e:
                damaged.append(name)
                assert e.tensor in state and str(tmp_path / "m.lmc") in str(e)
    assert 1 <= len(damaged) <= 2
    assert_same(found, {name: tensor for name, tensor in state.items() if name not in damaged})


def test_this_version_is_among_those_that_are_named():
    assert transformers.__version__ in _load.TESTED


def test_load_file_of_safetensors(tmp_path):
    """Libraries that call it load what a name in the hub's cache leads to."""
    state = bert().state_dict()
    lmc.torch.save_file(state, tmp_path / "blob.lmc")
    (tmp_path / "model.safetensors").symlink_to("blob.lmc")
    assert_same(safetensors.torch.load_file(tmp_path / "model.safetensors"), state)
    assert_same(safetensors.torch.load_file(tmp_path / "model.safetensors", device="cpu"), state)
    safetensors.torch.save_file(state, tmp_path / "plain.safetensors")
    assert_same(safetensors.torch.load_file(tmp_path / "plain.safetensors"), state)
    with pytest.raises(FileNotFoundError, match=r"none\.safetensors"):
        safetensors.torch.load_file(tmp_path / "none.safetensors")


def linked(folder):
    """Gives compressed files the names of their originals, too, as in the hub's cache."""
    for path in folder.rglob("*.safetensors.lmc"):
        path.with_suffix("").symlink_to(path.name)


@pytest.mark.long
def test_sentence_transformers(tmp_path):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Dense, Pooling, Transformer

    saved(bert(), tmp_path / "bert")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "sentence", "and", "another"]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    BertTokenizer(str(tmp_path / "vocab.txt")).save_pretrained(tmp_path / "bert")
    parts = [Transformer(str(tmp_path / "bert")), Pooling(64), Dense(64, 16)]
    model, texts = SentenceTransformer(modules=parts, device="cpu"), ["a sentence", "and another"]
    model.save(str(tmp_path / "m"))
    compressed(tmp_path / "m")
    dense = next(path for path in (tmp_path / "m").glob("*_Dense"))
    with pytest.raises(ValueError, match=r"model\.safetensors"):
        SentenceTransformer(str(tmp_path / "m"), device="cpu")
    linked(dense)
    found = SentenceTransformer(str(tmp_path / "m"), device="cpu")
    assert np.array_equal(found.encode(texts), model.encode(texts))


@pytest.mark.long
def test_diffusers(tmp_path):
    from diffusers import DDPMPipeline, DDPMScheduler, UNet2DModel

    kinds = {"down_block_types": ("DownBlock2D",) * 2, "up_block_types": ("UpBlock2D",) * 2}
    unet = UNet2DModel(sample_size=8, layers_per_block=1, block_out_channels=(32, 32), **kinds)
    DDPMPipeline(unet, DDPMScheduler()).save_pretrained(tmp_path / "m")
    compressed(tmp_path / "m")
    with pytest.raises(OSError, match="no file named"):
        DDPMPipeline.from_pretrained(tmp_path / "m")
    component = UNet2DModel.from_config(UNet2DModel.load_config(tmp_path / "m" / "unet"))
    component.load_state_dict(lmc.torch.load_file(tmp_path / "m" / "unet"))
    linked(tmp_path / "m")
    for found in (component, DDPMPipeline.from_pretrained(tmp_path / "m").unet):
        assert_same(found.state_dict(), unet.state_dict())
