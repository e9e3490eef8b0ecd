"""Versions that lmc writes for slime, miles, SGLang's branch and ModelExpress, against the code of ModelExpress.

lmc writes the one form that all of them read: XOR with Adler-32.
"""

import hashlib
import importlib
import importlib.util
import json
import subprocess
import sys
import types
import zlib
from pathlib import Path
from urllib.parse import urlsplit

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
import zstandard

INDEX = "model.safetensors.index.json"


def checksum(data):
    return f"{zlib.adler32(data):08x}"


@pytest.fixture(scope="module")
def modelexpress():
    """Its receiver, without the packages around it, which import gRPC and PyTorch."""
    root = Path(importlib.util.find_spec("modelexpress_rl").origin).parent
    for name in ("", ".inference", ".train"):
        module = types.ModuleType("modelexpress_rl" + name)
        module.__path__ = [str(root.joinpath(*name.split(".")))]
        sys.modules[module.__name__] = module
    load = importlib.import_module
    sys.modules["modelexpress_rl.train"].WeightPayloadFormat = load("modelexpress_rl.train.adapter").WeightPayloadFormat
    return load("modelexpress_rl.inference.receiver")


def models():
    """The tensors of four steps: some change, one never does, and the last step has one more."""
    random = np.random.default_rng(1)
    bf16 = random.standard_normal((300, 200)).astype(ml_dtypes.bfloat16)
    fp32 = random.standard_normal(5000).astype(np.float32)
    still = np.arange(100, dtype=np.float16)
    steps = []
    for n in range(1, 4):
        steps.append({"w.bf16": bf16, "w.fp32": fp32, "still": still, "count": np.array(n)})
        bf16, fp32 = bf16.copy(), fp32.copy()
        bf16.view(np.uint16).reshape(-1)[n::40] ^= 3
        fp32[::50] *= np.float32(1.001)
    return [*steps, {**steps[-1], "new": np.ones(7, np.float32)}]


def write(directory, tensors):
    """A checkpoint in two files, with an index."""
    directory.mkdir(parents=True)
    names = sorted(tensors)
    files = {"model-00001-of-00002.safetensors": names[:2], "model-00002-of-00002.safetensors": names[2:]}
    for file, of in files.items():
        safetensors.numpy.save_file({name: tensors[name] for name in of}, directory / file, {"format": "pt"})
    index = {"metadata": {}, "weight_map": {name: file for file, of in files.items() for name in of}}
    (directory / INDEX).write_text(json.dumps(index))
    (directory / "config.json").write_text("{}")


def digests(tensors):
    return {
        name: (str(t.dtype), t.shape, hashlib.sha256(np.ascontiguousarray(t).tobytes()).hexdigest())
        for name, t in tensors.items()
    }


def read(directory):
    """The tensors of a checkpoint, as values that identify them."""
    tensors = {}
    for file in Path(directory).glob("*.safetensors"):
        tensors.update(safetensors.numpy.load_file(file))
    return digests(tensors)


def lmc(*args):
    done = subprocess.run([sys.executable, "-m", "lmc", *map(str, args)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """The output of lmc."""
    root = tmp_path_factory.mktemp("published")
    for step, tensors in enumerate(models(), 1):
        write(root / "run" / f"step-{step}", tensors)
    lmc("publish", root / "store", root / "run", "--once", "--settle", "0", "--interchange", root / "out")
    return root / "out"


class Bucket:
    """Stands for modelexpress_rl.s3.S3Client: objects are files."""

    def __init__(self, root):
        self.root = root

    def path(self, uri):
        return self.root / urlsplit(uri).path[1:]

    def get(self, uri):
        return self.path(uri).read_bytes()

    def size(self, uri):
        return self.path(uri).stat().st_size


def receive(r, out, seed, cache, versions):
    """Prepares versions, each given by its number and that of its base or None, with the receiver of ModelExpress."""
    config = r.ObjectStorageGeneratorConfig(
        storage_type=r.ObjectStorageType.S3,
        initial_base_version_id="000000" if versions[0][1] is None else f"{versions[0][1]:06d}",
        seed_checkpoint_path=seed,
        refit_checkpoint_dir=cache,
        refit_checkpoint_max_size_gb=None,
    )
    local = r._LocalCheckpoint(model_name="m", config=config, s3=Bucket(out))
    local.initialize()
    formats = r.WeightPayloadFormat
    chain = [
        r._S3Version(
            version_id=f"{n:06d}",
            base_version_id=None if base is None else f"{base:06d}",
            payload_format=formats.FULL_HF_CHECKPOINT if base is None else formats.XOR_DELTA,
            uri=f"s3://bucket/weight_v{n:06d}/{INDEX}",
        )
        for n, base in versions
    ]
    prepared = local.prepare_chain(tuple(chain))
    local.activate(prepared)
    return prepared.path


def test_modelexpress_reads_what_lmc_writes(modelexpress, published, tmp_path):
    out, steps = published, models()
    write(tmp_path / "seed", steps[0])
    for n, versions in enumerate([[(1, None)], [(1, None), (2, 1)], [(1, None), (2, 1), (3, 2)]]):
        path = receive(modelexpress, out, tmp_path / "seed", tmp_path / f"cache{n}", versions)
        assert read(path) == digests(steps[n])
    # Deltas alone, against a checkpoint that is there.
    path = receive(modelexpress, out, tmp_path / "seed", tmp_path / "deltas", [(2, 1), (3, 2)])
    assert read(path) == digests(steps[2])
    # And a full version again, where a tensor appeared.
    write(tmp_path / "seed4", steps[3])
    path = receive(modelexpress, out, tmp_path / "seed4", tmp_path / "cache4", [(4, None)])
    assert read(path) == digests(steps[3])
    # It detects a delta against another base.
    write(tmp_path / "wrong", steps[1])
    with pytest.raises(RuntimeError, match="checksum differs"):
        receive(modelexpress, out, tmp_path / "wrong", tmp_path / "other", [(2, 1)])


def applied(base, version):
    """Applies a delta to tensors, given as bytes, and checks the checksums: slime's receiver, in a few lines."""
    index = json.loads((version / INDEX).read_bytes())
    metadata = index["metadata"]
    assert metadata["compression_format"] == "zstd"
    tensors = dict(base)
    for file in set(index["weight_map"].values()):
        with safetensors.safe_open(version / file, "numpy") as f:
            assert set(f.keys()) == {name for name, of in index["weight_map"].items() if of == file}
            for name in f.keys():  # noqa: SIM118
                plain = np.frombuffer(zstandard.ZstdDecompressor().decompress(f.get_tensor(name).tobytes()), np.uint8)
                new = np.frombuffer(tensors[name], np.uint8).copy()
                new ^= plain
                assert checksum(new) == f.metadata()[name]
                tensors[name] = new.tobytes()
    return tensors


def test_versions_are_what_the_libraries_read(published, tmp_path):
    out, steps = published, models()
    raw = [{name: t.tobytes() for name, t in step.items()} for step in steps]
    for n in (2, 3):
        assert applied(raw[n - 2], out / f"weight_v{n:06d}") == raw[n - 1]
    index = json.loads((out / "weight_v000002" / INDEX).read_bytes())
    del index["metadata"]["lmc"]
    assert index["metadata"] == {
        "version": "000002",
        "base_version": "000001",
        "delta_encoding": "xor",
        "compression_format": "zstd",
        "checksum_format": "adler32",
    }
    assert set(index["weight_map"]) == {"w.bf16", "w.fp32", "count"}
    full = out / "weight_v000004"
    assert read(full) == digests(steps[3])
    for file in full.glob("*.safetensors"):
        with safetensors.safe_open(file, "numpy") as f:
            sums = {name: checksum(steps[3][name].tobytes()) for name in f.keys()}  # noqa: SIM118
            assert f.metadata() == {"format": "pt", **sums}
