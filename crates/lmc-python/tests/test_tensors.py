"""Tensors in memory as files."""

import io
import json
import weakref

import lmc
import numpy as np
import pytest
from conftest import weights
from lmc._lmc import DlpackMemory, TensorList


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
        ([good, good], "two tensors have this name"),
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


def exported(array):
    """A DLPack capsule of an array's memory."""
    return array.__dlpack__()


def test_tensors_gathered_one_by_one():
    w = weights(1000)
    array = np.frombuffer(bytearray(w.tobytes()), np.float32).reshape(10, 100)
    none = np.empty((0, 3), np.int64)
    expected = lmc.compress_tensors([("w", "F32", (10, 100), w), ("none", "I64", [0, 3], b"")])

    def added():
        gathered = TensorList()
        gathered.add("w", "F32", [10, 100], w)
        gathered.add("none", "I64", (0, 3), b"")
        return gathered

    def by_capsule():
        gathered = TensorList()
        assert gathered.add_all([("w", "F32", exported(array))])
        gathered.add("none", "I64", (0, 3), b"")
        return gathered

    def memory():
        return [("w", "F32", (10, 100), DlpackMemory(exported(array))), ("none", "I64", (0, 3), none)]

    for gather in (added, by_capsule, memory):
        gathered = gather()
        assert len(gathered) == 2
        assert gather is memory or gathered.header() + w.tobytes() == lmc.decompress(expected)
        assert lmc.compress_tensors(gathered) == expected
    gathered = by_capsule()
    assert lmc.compress_tensors(gathered) == expected
    assert len(gathered) == 0 and lmc.compress_tensors(gathered) == lmc.compress_tensors([])


def test_memory_of_capsules_is_kept():
    array, gone = np.arange(8, dtype=np.uint8), []
    weakref.finalize(array, gone.append, True)
    gathered = TensorList()
    assert gathered.add_all([("a", "U8", exported(array))])
    memory = DlpackMemory(exported(array))
    unused = exported(array)
    del array
    assert lmc.decompress(lmc.compress_tensors(gathered)).endswith(bytes(range(8)))
    assert not gone
    del memory
    assert not gone
    del unused
    assert gone


def test_memory_that_overlaps():
    whole = np.zeros(9, np.float32)

    def overlap(*starts):
        gathered = TensorList()
        assert gathered.add_all([(f"{i}", "F32", exported(whole[i : i + 2])) for i in starts])
        gathered.add("none", "F32", (0,), bytearray())
        return gathered.overlap()

    assert not overlap() and not overlap(0) and not overlap(2, 0, 4)
    assert overlap(0, 1) and overlap(5, 5) and overlap(7, 2, 1)
    # An unexpected request: no bytes, but an address.
    assert not TensorList().add_all([("a", "F32", exported(whole[:0]))])


def test_memory_of_capsules_is_written_to():
    raw = b"0123456789"
    array = np.zeros(6, np.uint8)
    memory = DlpackMemory(exported(array[:5]))
    assert len(memory) == 5
    with lmc.open(lmc.compress(raw)) as f:
        f.read_range_into(1, memory)
    assert array.tobytes() == b"12345\0"


def test_memory_comes_from_capsules_alone():
    """No number, and no object of Python code, becomes an address."""
    array = np.arange(8, dtype=np.uint8)
    address = array.ctypes.data
    used = exported(array)
    memory = DlpackMemory(used)
    new_version = array.__dlpack__(max_version=(1, 0))

    class Pretender:
        __array_interface__ = array.__array_interface__
        address, nbytes = array.ctypes.data, 8

        def __len__(self):
            return 8

        def __dlpack__(self, **_):
            return address

    for wrong in (address, 0, None, b"dltensor", "dltensor", array, used, new_version, memory, Pretender(), [address]):
        with pytest.raises(TypeError, match="DLPack capsule"):
            DlpackMemory(wrong)
        with pytest.raises(TypeError, match="DLPack capsule"):
            TensorList().add_all([("a", "U8", wrong)])
    for args in ((), (array, address, 8), (None, address, 8)):
        with pytest.raises(TypeError):
            DlpackMemory(*args)
        with pytest.raises((TypeError, ValueError)):
            TensorList().add_all([("a", "U8", *args)])
    for kind in (type(memory), TensorList):
        with pytest.raises(TypeError, match="not an acceptable base type"):
            type("Derived", (kind,), {})
    for name in ("address", "start", "nbytes"):
        with pytest.raises(AttributeError):
            setattr(memory, name, address)
    with pytest.raises(TypeError):
        lmc.compress(Pretender())
    assert len(memory) == 8


def test_capsules_of_other_tensors():
    grid = np.arange(12, dtype=np.float32).reshape(3, 4)
    for array in (grid.T, grid[:, :2], grid[::2], grid[::-1]):
        capsule = exported(array)
        for _ in range(2):
            # A capsule that is refused is not used up.
            with pytest.raises(lmc.UsageError, match="must be contiguous: shape .* has strides"):
                DlpackMemory(capsule)
        with pytest.raises(lmc.UsageError, match="contiguous"):
            TensorList().add_all([("a", "F32", capsule)])
    # Strides of one element mean nothing, and of a scalar there are none.
    for array in (grid[1:2], grid[:1, :1], grid[:, 1:2][:1], grid[2, 3, ...], np.zeros((0, 4))[:, ::2]):
        assert len(DlpackMemory(exported(array))) == array.nbytes
    assert DlpackMemory(exported(np.zeros(3, np.complex64))).__len__() == 24
    with pytest.raises(BufferError):
        exported(np.frombuffer(b"read only", np.uint8))
    with pytest.raises(lmc.UsageError, match="12 bytes"):
        gathered = TensorList()
        assert gathered.add_all([("a", "F64", exported(np.zeros(3, np.float32)))])
        lmc.compress_tensors(gathered)
    with pytest.raises(lmc.UsageError, match="F33"):
        TensorList().add_all([("a", "F33", exported(grid))])
