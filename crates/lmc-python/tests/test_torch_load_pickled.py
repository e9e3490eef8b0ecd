"""lmc.torch.load of what torch.save wrote."""

import io
import pickle
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path

import lmc
import lmc.torch
import pytest
import safetensors.torch
import torch
from torch_tensors import assert_same, raised_by, weights

FILES = Path(__file__).parents[3] / "testdata" / "layouts" / "torch"
# Of more than a window that is decoded ahead, of several blocks, and small.
TENSORS = {"large": weights(3 << 20), "middle": weights(700, 900, seed=1).bfloat16(), "step": torch.tensor(7)}


@pytest.fixture(params=[False, True], ids=["plain", "compressed"])
def path(request, tmp_path):
    """A file of `TENSORS`, compressed or not."""
    path = tmp_path / "state.pt"
    torch.save(TENSORS, path)
    if not request.param:
        return path
    lmc.compress_file(path, tmp_path / "state.pt.lmc")
    return tmp_path / "state.pt.lmc"


def test_paths_and_files(path):
    for given in (path, str(path), io.BytesIO(path.read_bytes()), path.open("rb")):
        assert_same(lmc.torch.load(given), TENSORS)
    assert_same(lmc.torch.load(path, threads=1, weights_only=True, mmap=False), TENSORS)


@pytest.mark.parametrize("old", [False, True])
def test_values_of_every_kind(old, tmp_path):
    shared = weights(50, 40)
    module = torch.nn.Linear(3, 4)
    state = OrderedDict(
        a=[shared, shared[3:5], shared.t()], b={"none": None, "n": (1, 2.5, True)}, model=module.state_dict()
    )
    torch.save(state, tmp_path / "s.pt", _use_new_zipfile_serialization=not old)
    lmc.compress_file(tmp_path / "s.pt", tmp_path / "s.pt.lmc")
    found, expected = lmc.torch.load(tmp_path / "s.pt.lmc"), torch.load(tmp_path / "s.pt")
    assert type(found) is OrderedDict and found.keys() == expected.keys() and found["b"] == expected["b"]
    for ours, theirs in zip(found["a"], expected["a"], strict=True):
        assert torch.equal(ours, theirs) and ours.stride() == theirs.stride()
        assert ours.untyped_storage().data_ptr() == found["a"][0].untyped_storage().data_ptr()
    module.load_state_dict(found["model"])


def test_map_location(path):
    assert all(t.device.type == "meta" for t in lmc.torch.load(path, map_location="meta").values())
    asked = []
    assert_same(lmc.torch.load(path, lambda storage, where: asked.append(where) or storage), TENSORS)
    assert asked == ["cpu"] * 3


class Other:
    """What only a pickle can restore."""


def test_pickles_are_refused_unless_they_are_trusted(tmp_path):
    torch.save({"a": Other()}, tmp_path / "s.pt")
    lmc.compress_file(tmp_path / "s.pt", tmp_path / "s.pt.lmc")
    for path in (tmp_path / "s.pt.lmc", FILES / "evil.pt"):
        with pytest.raises(pickle.UnpicklingError, match="Weights only"):
            lmc.torch.load(path)
    assert not Path("/tmp/lmc-unpickled").exists()
    assert type(lmc.torch.load(tmp_path / "s.pt.lmc", weights_only=False)["a"]) is Other
    assert type(lmc.torch.load(tmp_path / "s.pt.lmc", None, pickle, weights_only=False)["a"]) is Other


def test_a_delta(tmp_path):
    for step in range(2):
        torch.save({name: t * (1 + step) for name, t in TENSORS.items()}, tmp_path / f"{step}.pt")
    delta = tmp_path / "elsewhere" / "1.pt.lmc"
    delta.parent.mkdir()
    lmc.compress_file(tmp_path / "1.pt", delta, base=tmp_path / "0.pt")
    assert_same(lmc.torch.load(delta, base=tmp_path / "0.pt"), {name: t * 2 for name, t in TENSORS.items()})
    with pytest.raises(lmc.BaseMismatchError):
        lmc.torch.load(delta)


@pytest.mark.parametrize("name", ["kinds", "legacy", "one", "protocol5", "shared", "state", "views"])
def test_files_of_torch(name):
    expected = torch.load(FILES / f"{name}.pt", weights_only=False)
    found = lmc.torch.load(io.BytesIO(lmc.compress((FILES / f"{name}.pt").read_bytes())), weights_only=False)
    assert str(found) == str(expected)


def test_mapping(path):
    if path.suffix == ".pt":
        assert_same(lmc.torch.load(path, mmap=True), TENSORS)
    else:
        with pytest.raises(lmc.UsageError, match="lmc mount"):
            lmc.torch.load(path, mmap=True)
        torch.utils.serialization.config.load.mmap, before = True, torch.utils.serialization.config.load.mmap
        try:
            assert_same(lmc.torch.load(path), TENSORS)
        finally:
            torch.utils.serialization.config.load.mmap = before


def test_other_files(tmp_path):
    safetensors.torch.save_file(TENSORS, tmp_path / "m.safetensors")
    lmc.torch.save_file(TENSORS, tmp_path / "m.lmc")
    for name in ("m.safetensors", "m.lmc"):
        with pytest.raises(lmc.UsageError, match="load_file"):
            lmc.torch.load(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        lmc.torch.load(tmp_path / "missing.pt.lmc")
    for wrong in (5, None, TENSORS["step"]):
        with pytest.raises(TypeError):
            lmc.torch.load(wrong)
    for options in ({"map_location": "cpu"}, {"weights_only": True}, {"mmap": True}, {"encoding": "latin1"}):
        with pytest.raises(lmc.UsageError, match="BytesIO"):
            lmc.torch.load(lmc.torch.save(TENSORS), **options)
    text = lmc.compress(b"no pickle " * 99)
    assert type(raised_by(lmc.torch.load, io.BytesIO(text))) is type(
        raised_by(torch.load, io.BytesIO(b"no pickle " * 99))
    )


def test_damage(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 1
    if path.suffix == ".lmc":
        with pytest.raises(lmc.DamagedError):
            lmc.torch.load(io.BytesIO(data))
        with pytest.raises(lmc.DamagedError):
            lmc.torch.load(io.BytesIO(data[:1000]))


MEASURED = """
import sys, lmc.torch, torch
peak = lambda: next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith("VmHWM"))
lmc.torch.load(sys.argv[1])
before = peak()
found = lmc.torch.load(sys.argv[2])
print(peak() - before, sum(t.nbytes for t in found.values()))
"""


def test_tensors_are_held_once(tmp_path):
    for name, n in (("small", 1 << 20), ("large", 1 << 24)):
        torch.save({str(i): weights(n // 4, seed=i) for i in range(4)}, tmp_path / f"{name}.pt")
        lmc.compress_file(tmp_path / f"{name}.pt", tmp_path / f"{name}.pt.lmc")
    command = [sys.executable, "-c", MEASURED, tmp_path / "small.pt.lmc", tmp_path / "large.pt.lmc"]
    more, size = map(int, subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())
    assert size == 1 << 26
    # The smaller one is still counted, or its memory used again.
    assert size - (20 << 20) < more < size + (40 << 20)
