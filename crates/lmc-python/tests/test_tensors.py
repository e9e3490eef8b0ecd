"""Tensors in memory as files."""

import ctypes
import io
import json
import weakref

import lmc
import pytest
from conftest import weights
from lmc._lmc import RawMemory, TensorList


def header(raw):
    return json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])


def test_tensors_as_a_file(tmp_path):
    w, tensors = weights(1 << 18), []
    tensors.append(("w", "F32", (1 << 9, 1 << 9), w))
    tensors.append(("b", "bf16", [3], memoryview(bytearray(b"abcdef"))))
    tensors.append(("packed", "F4", (2, 3), b"xyz"))
    tensors.append(("none", "I64", (0,), b""))
    file = lmc.compress_tensors(iter(tensors), metadata={"format": "pt"}, threads=2)
    raw = lmc.decompress(file)
    found = header(raw)
    assert found.pop("__metadata__") == {"format": "pt"}
    assert {n: (t["dtype"], t["shape"]) for n, t in found.items()} == {
        "w": ("F32", [512, 512]),
        "b": ("BF16", [3]),
        "packed": ("F4", [2, 3]),
        "none": ("I64", [0]),
    }
    with lmc.open(file) as f:
        for name, _, _, data in tensors:
            assert f.read(name) == bytes(data)
    done = lmc.compress_tensors_file(tensors, tmp_path / "model.lmc", metadata={"format": "pt"})
    assert (tmp_path / "model.lmc").read_bytes() == file
    assert (done.raw_size, done.compressed_size) == (len(raw), len(file))
    with pytest.raises(FileExistsError):
        lmc.compress_tensors_file(tensors, tmp_path / "model.lmc", overwrite=False)
    assert lmc.decompress(lmc.compress_tensors([])) == b"\x08" + bytes(7) + b"{}      "


def test_tensors_in_file_objects(tmp_path):
    w = weights(1 << 19)
    given = [("b", "U8", (5,), b"12345"), ("w", "F32", (1 << 19,), w)]
    (tmp_path / "w").write_bytes(w.tobytes())
    with open(tmp_path / "w", "rb") as source:
        for threads in (1, 2):
            found = lmc.compress_tensors([given[0], ("w", "F32", (1 << 19,), source)], threads=threads)
            assert found == lmc.compress_tensors(given)

    class Broken(io.BytesIO):
        def read(self, size=-1):
            raise KeyError("gone")

    with pytest.raises(KeyError, match="gone"):
        lmc.compress_tensors([("w", "U8", (5,), Broken(b"12345"))])
    with pytest.raises(lmc.UsageError, match='tensor "w"'):
        lmc.compress_tensors([("w", "U8", (5,), io.BytesIO(b"1234"))])


def test_deltas_of_tensors(array, later):
    of = lambda a: [("w", "F32", a.shape, a)]  # noqa: E731
    old = lmc.compress_tensors(of(array))
    new = lmc.compress_tensors(of(later), base=old)
    assert len(new) < 0.6 * len(old)
    assert lmc.decompress(new, base=old) == lmc.decompress(lmc.compress_tensors(of(later)))


def test_tensors_that_fit_no_file():
    good = ("a", "F32", (2,), bytes(8))
    for tensors, why in [
        ([good, good], "named"),
        ([("__metadata__", "U8", (1,), b"x")], "__metadata__"),
        ([("a", "F32", (3,), bytes(8))], "8 bytes"),
        ([("a", "F33", (2,), bytes(8))], "F33"),
        ([("a", "F32", (1,) * 300, bytes(4))], "shape"),
    ]:
        with pytest.raises(lmc.UsageError, match=why):
            lmc.compress_tensors(tensors)
    for tensors in (
        3,
        [3],
        [("a", "F32", (2,))],
        [("a", "F32", 2, bytes(8))],
        [("a", "F32", (2,), "text")],
        [good[:3]],
    ):
        with pytest.raises((TypeError, ValueError)):
            lmc.compress_tensors(tensors)
    with pytest.raises(lmc.UsageError, match='a dimension of the tensor "a"=-2: must be from 0'):
        lmc.compress_tensors([("a", "F32", (-2,), bytes(8))])
    with pytest.raises(TypeError):
        lmc.compress_tensors([good], metadata={"a": 1})


def test_tensors_gathered_one_by_one():
    w = weights(1000)
    memory = (ctypes.c_ubyte * len(w.tobytes())).from_buffer_copy(w)
    address, size = ctypes.addressof(memory), ctypes.sizeof(memory)
    expected = lmc.compress_tensors([("w", "F32", (10, 100), w), ("none", "I64", [0, 3], b"")])

    def added():
        gathered = TensorList()
        gathered.add("w", "F32", [10, 100], w)
        gathered.add("none", "I64", (0, 3), b"")
        return gathered

    def by_address():
        gathered = TensorList()
        assert gathered.add_all([("w", "F32", (10, 100), memory, address), ("none", "I64", (0, 3), None, 0)])
        return gathered

    def raw_memory():
        none = RawMemory(None, 0, 0)
        return [("w", "F32", (10, 100), RawMemory(memory, address, size)), ("none", "I64", (0, 3), none)]

    for gather in (added, by_address, raw_memory):
        gathered = gather()
        assert len(gathered) == 2
        assert gather is raw_memory or gathered.header() + w.tobytes() == lmc.decompress(expected)
        assert lmc.compress_tensors(gathered) == expected
    gathered = by_address()
    assert lmc.compress_tensors(gathered) == expected
    assert len(gathered) == 0 and lmc.compress_tensors(gathered) == lmc.compress_tensors([])


def test_owners_of_memory_are_kept():
    memory = (ctypes.c_ubyte * 8)(*range(8))
    address, gone = ctypes.addressof(memory), []
    weakref.finalize(memory, gone.append, True)
    gathered = TensorList()
    assert gathered.add_all([("a", "U8", (8,), memory, address)])
    raw = RawMemory(memory, address, 8)
    del memory
    assert lmc.decompress(lmc.compress_tensors(gathered)).endswith(bytes(range(8)))
    assert not gone
    del raw
    assert gone


def test_memory_that_overlaps():
    def overlap(*addresses):
        gathered = TensorList()
        assert gathered.add_all([(f"{a}", "F32", (2,), None, a) for a in addresses])
        gathered.add("none", "F32", (0,), bytearray())
        return gathered.overlap()

    assert not overlap() and not overlap(64) and not overlap(72, 64, 80)
    assert overlap(64, 68) and overlap(64, 64) and overlap(640, 71, 64)
    # An unexpected request.
    assert not TensorList().add_all([("a", "F32", (0,), None, 64)])
    assert not TensorList().add_all([("a", "F32", (1,), None, 0)])
    with pytest.raises(lmc.UsageError, match="large"):
        TensorList().add_all([("a", "F32", (1 << 40, 1 << 40), None, 64)])


def test_raw_memory_is_written_to():
    raw = b"0123456789"
    memory = (ctypes.c_ubyte * 6)()
    with lmc.open(lmc.compress(raw)) as f:
        f.read_range_into(1, RawMemory(memory, ctypes.addressof(memory), 5))
    assert bytes(memory) == b"12345\0"
