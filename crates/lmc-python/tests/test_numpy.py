"""`lmc.numpy` beside `safetensors.numpy`."""

import copy
import io
import mmap
import pickle
import sys
import threading

import lmc
import lmc.numpy
import ml_dtypes
import numpy as np
import pytest
import safetensors
import safetensors.numpy
from conftest import resident, weights


@pytest.fixture(scope="module")
def arrays():
    """Arrays of every dtype that both know, and of odd shapes."""
    kinds = [bool, "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8", "c8", ml_dtypes.bfloat16]
    found = {f"of.{np.dtype(k).name}": weights(60, n).view("u1").astype(k).reshape(6, -1) for n, k in enumerate(kinds)}
    for kind in ("float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "float8_e4m3fnuz", "float8_e5m2fnuz"):
        found[f"of.{kind}"] = np.arange(64, dtype=np.uint8).view(getattr(ml_dtypes, kind)).reshape(4, 16)
    return found | {
        "large": weights(1 << 19).reshape(1 << 9, -1),
        "scalar": np.array(2.5, np.float64),
        "empty": np.zeros((3, 0, 2), np.float32),
        'a "quoted" ñame': np.arange(5),
    }


def theirs(arrays, path, metadata=None):
    safetensors.numpy.save_file(arrays, path, metadata=metadata)
    return path.read_bytes()


def equal(a, b):
    """Equal to the bit, in dtype and shape."""
    return (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())


def test_the_file_is_the_one_that_safetensors_writes(arrays, tmp_path):
    for metadata in (None, {}, {"format": "np"}):
        want = theirs(arrays, tmp_path / "theirs", metadata)
        assert lmc.decompress(lmc.numpy.save(arrays, metadata=metadata)) == want
        lmc.numpy.save_file(arrays, tmp_path / "ours.lmc", metadata=metadata, level="max", threads=2)
        lmc.decompress_file(tmp_path / "ours.lmc", tmp_path / "ours")
        assert (tmp_path / "ours").read_bytes() == want


def test_loading(arrays, tmp_path):
    lmc.numpy.save_file(arrays, tmp_path / "model.lmc")
    theirs(arrays, tmp_path / "model.safetensors")
    files = [tmp_path / "model.lmc", str(tmp_path / "model.safetensors")]
    for file in files:
        loaded = [lmc.numpy.load_file(file), lmc.numpy.load_file(file, backend="pread", threads=1)]
        with open(file, "rb") as f:
            loaded.append(lmc.numpy.load(f.read()))
        for found in loaded:
            assert found.keys() == arrays.keys()
            for name, array in arrays.items():
                assert equal(found[name], array), name
                # Separate memory: keeping one array alive keeps none of the others.
                assert found[name].flags.owndata
                assert found[name].flags.writeable
                assert found[name].flags.c_contiguous


def test_arrays_that_are_not_as_files_have_them():
    odd = {
        "transposed": np.arange(12.0).reshape(3, 4).T,
        "strided": np.arange(20)[::3],
        "reversed": np.arange(20)[::-1],
        "big-endian": np.arange(7, dtype=">i4"),
        "fortran": np.asfortranarray(np.arange(12.0).reshape(3, 4)),
    }
    loaded = lmc.numpy.load(lmc.numpy.save(odd))
    for name, array in odd.items():
        assert np.array_equal(loaded[name], array)
        assert loaded[name].dtype == array.dtype.newbyteorder("<")


def test_deltas(array, later, tmp_path):
    old, new = {"w": array}, {"w": later}
    lmc.numpy.save_file(old, tmp_path / "old.lmc")
    lmc.numpy.save_file(new, tmp_path / "new.lmc", base=tmp_path / "old.lmc")
    assert (tmp_path / "new.lmc").stat().st_size < 0.6 * (tmp_path / "old.lmc").stat().st_size
    for base in (None, tmp_path / "old.lmc", safetensors.numpy.save(old)):
        assert equal(lmc.numpy.load_file(tmp_path / "new.lmc", base=base)["w"], later)
    with lmc.numpy.safe_open(tmp_path / "new.lmc", base=tmp_path / "old.lmc") as f:
        assert equal(f.get_slice("w")[5:7], later[5:7])


@pytest.mark.parametrize("safe_open", [lmc.safe_open, lmc.numpy.safe_open])
def test_safe_open(safe_open, arrays, tmp_path):
    lmc.numpy.save_file(arrays, tmp_path / "model.lmc", metadata={"step": "3"})
    theirs(arrays, tmp_path / "model.safetensors", {"step": "3"})
    with safetensors.safe_open(tmp_path / "model.safetensors", "np") as want:
        for file in ("model.lmc", "model.safetensors"):
            with safe_open(tmp_path / file, framework="np", device="cpu") as f:
                assert f.keys() == want.keys()
                assert f.offset_keys() == want.offset_keys() == list(f.get_tensors())
                assert f.metadata() == want.metadata() == {"step": "3"}
                for name, array in arrays.items():
                    assert equal(f.get_tensor(name), array)
                    part, whole = f.get_slice(name), want.get_slice(name)
                    assert part.get_shape() == whole.get_shape()
                    assert part.get_dtype() == whole.get_dtype()
                assert {name: a.shape for name, a in f.get_tensors().items()} == {n: a.shape for n, a in arrays.items()}
            with pytest.raises(lmc.UsageError, match="closed"):
                f.get_tensor("large")
            with pytest.raises(lmc.UsageError, match="closed"):
                f.keys()


INDICES = [
    0,
    511,
    slice(None),
    slice(10, 20),
    slice(500, None),
    slice(0, 512, 100),
    slice(7, 7),
    ...,
    (..., 3),
    (slice(5, 9), slice(2, 4)),
    (3, slice(1, 5)),
    (3, 4),
    (slice(None), 5),
    (slice(0, 100, 7), slice(None, None, 5)),
    (slice(2, 3), ...),
]


def test_slices_are_those_of_safetensors(arrays, tmp_path):
    lmc.numpy.save_file(arrays, tmp_path / "model.lmc")
    theirs(arrays, tmp_path / "model.safetensors")
    with (
        lmc.numpy.safe_open(tmp_path / "model.lmc") as f,
        safetensors.safe_open(tmp_path / "model.safetensors", "np") as want,
    ):
        for index in INDICES:
            found, expected = f.get_slice("large")[index], want.get_slice("large")[index]
            assert isinstance(found, np.ndarray)
            assert equal(found, expected), index
            assert found.base is None, index
        assert f.get_slice("scalar")[...] == 2.5
        # Indices that safetensors rejects have numpy's meaning.
        for index in (-1, slice(-3, None), slice(None, None, -1), slice(500, 9999), (slice(None), -2)):
            assert equal(f.get_slice("large")[index], np.asarray(arrays["large"][index]).copy()), index
        assert f.get_slice("empty")[1:].shape == (2, 0, 2)
        # Integers of numpy, and whatever else is an index.
        for index in (np.int64(7), (np.uint8(3), np.int32(-1)), slice(np.int16(2), np.int64(9)), np.array(5)):
            assert equal(f.get_slice("large")[index], np.asarray(arrays["large"][index]).copy()), index
        # Iteration ends with the rows.
        assert [equal(row, want) for row, want in zip(f.get_slice("large"), arrays["large"], strict=True)] == [
            True
        ] * 512


def test_slices_that_do_not_exist(arrays, tmp_path):
    lmc.numpy.save_file(arrays, tmp_path / "model.lmc")
    with lmc.numpy.safe_open(tmp_path / "model.lmc") as f:
        booleans = (True, (0, False), np.True_, np.array(True))
        for index in ((0, 0, 0), None, [0, 1], (..., ...), "x", (0, None), np.array([1]), 1.0, *booleans):
            with pytest.raises(lmc.UsageError) as raised:
                f.get_slice("large")[index]
            assert not isinstance(raised.value, IndexError)
        for index in (512, -513, (0, 1024), (..., -1025), np.int64(512), np.uint16(512)):
            with pytest.raises(lmc.UsageError, match="is not in dimension .* of size") as raised:
                f.get_slice("large")[index]
            assert isinstance(raised.value, IndexError)
        for get in (f.get_tensor, f.get_slice):
            with pytest.raises(lmc.NotFoundError):
                get("nothing")


def test_a_slice_reads_no_more_than_its_rows(arrays, tmp_path):
    lmc.numpy.save_file({"w": weights(1 << 20).reshape(1 << 10, -1)}, tmp_path / "model.lmc")

    class Counting:
        def __init__(self):
            self.file, self.read_bytes = open(tmp_path / "model.lmc", "rb"), 0

        def seek(self, *args):
            return self.file.seek(*args)

        def read(self, size):
            self.read_bytes += size
            return self.file.read(size)

    source = Counting()
    f = lmc.numpy.safe_open._of(lmc.open(source))
    source.read_bytes = 0
    assert f.get_slice("w")[5:6].shape == (1, 1024)
    assert 0 < source.read_bytes < 1 << 20
    source.file.close()


def test_what_cannot_be_saved(tmp_path):
    for wrong in ([1, 2], "text", None):
        with pytest.raises(TypeError, match="'a' must be a numpy array"):
            lmc.numpy.save({"a": wrong})
    for masked in (np.ma.masked_array([1.0, 2.0], [True, False]), np.ma.masked_array([1.0, 2.0]), np.ma.masked):
        with pytest.raises(lmc.UsageError, match="'a' is masked, and files have no masks"):
            lmc.numpy.save({"a": masked})
    for kind in ("c16", "O", "U3", "M8[s]"):
        with pytest.raises(lmc.UsageError, match="no dtype"):
            lmc.numpy.save({"a": np.zeros(3, kind)})
    with pytest.raises(lmc.UsageError, match="__metadata__"):
        lmc.numpy.save({"__metadata__": np.zeros(3)})
    with pytest.raises(TypeError):
        lmc.numpy.save({"a": np.zeros(3)}, metadata={"step": 3})
    with pytest.raises(FileNotFoundError):
        lmc.numpy.save_file({"a": np.zeros(3)}, tmp_path / "no" / "file")


def test_what_cannot_be_loaded(tmp_path):
    with pytest.raises(FileNotFoundError):
        lmc.numpy.load_file(tmp_path / "missing")
    for data in (b"", b"abc", lmc.compress(b"abc"), lmc.compress(bytes(1000), dtype="F32")):
        with pytest.raises(lmc.FormatError, match="safetensors"):
            lmc.numpy.load(data)
    with pytest.raises(TypeError):
        lmc.numpy.load(3)
    lmc.numpy.save_file({"a": np.zeros(3)}, tmp_path / "file")
    with open(tmp_path / "file", "rb") as file:
        for no_data in (str(tmp_path / "file"), tmp_path / "file", file, io.BytesIO(file.read())):
            with pytest.raises(TypeError, match="data must be .*, not .*; load_file loads files"):
                lmc.numpy.load(no_data)
    for options in ({"framework": "pt"}, {"device": "cuda"}, {"backend": "magic"}):
        with pytest.raises(lmc.UsageError, match=next(iter(options))):
            lmc.numpy.safe_open(tmp_path / "file", **options)
    nibbles = lmc.compress_tensors([("n", "F4", (4,), b"ab")])
    with pytest.raises(lmc.UnsupportedError, match="F4"):
        lmc.numpy.load(nibbles)


def test_nothing_is_left_out_in_silence():
    """Unknown tensors and invalid data are reported as in safetensors."""
    known = '"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}'
    for header in (f'{{{known},"b":{{"dtype":"U3","shape":[2],"data_offsets":[2,4]}}}}', f"{{{known}}}"):
        file = len(header).to_bytes(8, "little") + header.encode() + b"abcd"
        with pytest.raises(safetensors.SafetensorError):
            safetensors.numpy.load(file)
        for form in (file, lmc.compress(file)):
            with pytest.raises(lmc.DamagedError, match="header of the safetensors file is invalid"):
                lmc.numpy.load(form)


def test_without_ml_dtypes(arrays, monkeypatch):
    file = lmc.numpy.save({"b": arrays["of.bfloat16"], "f": arrays["large"]})
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(lmc.UnsupportedError, match="pip install ml_dtypes"):
        lmc.numpy.load(file)
    with lmc.numpy.safe_open._of(lmc.open(file)) as f:
        assert equal(f.get_tensor("f"), arrays["large"])


def test_data_in_any_buffer(arrays, tmp_path):
    for save in (lmc.numpy.save_file, safetensors.numpy.save_file):
        small = {"a": np.arange(12.0).reshape(3, 4), "b": np.ones(5, "i2")}
        save(small, tmp_path / "file")
        with open(tmp_path / "file", "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            data = file.read()
            for buffer in (data, bytearray(data), memoryview(data), np.frombuffer(data, np.uint8), mapped):
                found = lmc.numpy.load(buffer)
                assert found.keys() == small.keys() and all(equal(found[name], small[name]) for name in small)


def test_threads_share_a_file(arrays, tmp_path):
    lmc.numpy.save_file(arrays, tmp_path / "model.lmc")
    wrong = []
    with lmc.numpy.safe_open(tmp_path / "model.lmc", threads=2) as f:

        def read():
            for name, array in arrays.items():
                if not equal(f.get_tensor(name), array) or not equal(f.get_slice("large")[3:5], arrays["large"][3:5]):
                    wrong.append(name)

        threads = [threading.Thread(target=read) for _ in range(8)]
        [t.start() for t in threads]
        [t.join() for t in threads]
    assert wrong == []


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("package", [lmc.numpy, safetensors.numpy])
def test_small_arrays_among_large_ones(tmp_path, package, threads):
    expected = {}
    for i in range(1500):
        expected[f"{i:04}.bias"] = weights(31 * (1 + i % 60), i).reshape(31, -1)
        expected[f"{i:04}.flag"] = np.array(i % 2 == 0)
        if i % 300 == 0:
            expected[f"{i:04}.weight"] = weights(60_000, i)
            expected[f"{i:04}.none"] = np.empty((0, 3), np.float32)
            expected[f"{i:04}.u4"] = np.arange(i, i + 9, dtype="u4")
    package.save_file(expected, tmp_path / "many")
    found = lmc.numpy.load_file(tmp_path / "many", threads=threads)
    assert found.keys() == expected.keys() and all(equal(found[n], expected[n]) for n in expected)
    assert list(found) == lmc.numpy.safe_open(tmp_path / "many").offset_keys()
    end = 0
    for array in sorted((a for a in found.values() if a.size), key=lambda a: a.ctypes.data):
        assert array.ctypes.data >= end and array.flags.aligned and array.flags.writeable and array.flags.c_contiguous
        end = array.ctypes.data + array.nbytes


def test_small_arrays_are_like_any_other():
    found = lmc.numpy.load(lmc.numpy.save({f"{i}": weights(20, i).reshape(5, 4) for i in range(6)}))
    for copied in (pickle.loads(pickle.dumps(found["0"])), copy.deepcopy(found["0"]), found["0"].copy()):
        assert equal(copied, weights(20, 0).reshape(5, 4))
    found["1"][:] = 1
    found["2"] += 1
    assert (found["1"] == 1).all() and equal(found["2"], weights(20, 2).reshape(5, 4) + 1)
    last = found["3"]
    assert bytes(memoryview(found["4"]).cast("B")) == weights(20, 4).tobytes()
    del found
    assert equal(last, weights(20, 3).reshape(5, 4))
    assert lmc.numpy.load(lmc.numpy.save({"a": last}))["a"].tobytes() == last.tobytes()


def test_memory_of_small_arrays_is_freed(tmp_path):
    count, size = 8192, 1024
    lmc.numpy.save_file({f"{i:05}": np.full(size, i, np.int64) for i in range(count)}, tmp_path / "many.lmc")

    def kept():
        return lmc.numpy.load_file(tmp_path / "many.lmc", threads=1)["04000"]

    kept()
    before, all_kept = resident(), []
    for _ in range(3):
        all_kept.append(kept())
    # All of them have 64 MiB each time.
    assert resident() - before < 32 << 20
    assert all((array == 4000).all() for array in all_kept)


@pytest.mark.parametrize("framework", ["np", "numpy"])
def test_safe_open_of_any_framework(tmp_path, framework):
    arrays = {"w": np.arange(12, dtype=np.float32).reshape(3, 4)}
    lmc.numpy.save_file(arrays, tmp_path / "base.lmc")
    lmc.numpy.save_file(arrays, tmp_path / "w.lmc", base=tmp_path / "base.lmc")
    with lmc.safe_open(tmp_path / "w.lmc", framework, base=tmp_path / "base.lmc", threads=1) as f:
        assert isinstance(f, lmc.numpy.safe_open)
        assert np.array_equal(f.get_tensor("w"), arrays["w"])
        assert np.array_equal(f.get_slice("w")[1:], arrays["w"][1:])
    with lmc.safe_open(filename=tmp_path / "base.lmc", framework=framework, device="cpu", backend="pread") as f:
        assert f.keys() == ["w"]
    with pytest.raises(lmc.UsageError, match="device='cuda'"):
        lmc.safe_open(tmp_path / "w.lmc", framework, "cuda")


def test_safe_open_of_no_framework(tmp_path):
    known = r"framework=.*: must be 'pt' \(also 'torch', 'pytorch'\) or 'np' \(also 'numpy'\)"
    for framework in ("", "PT", "numpy ", None, 3):
        for call in (lmc.safe_open, lmc.numpy.safe_open):
            with pytest.raises(lmc.UsageError, match=known + "$"):
                call(tmp_path / "w.lmc", framework)
    # Those that safetensors has, too.
    for framework in ("tf", "tensorflow", "jax", "flax", "mlx", "paddle"):
        advice = f"; open it with 'np' and convert the arrays to {framework}$"
        for call in (lmc.safe_open, lmc.numpy.safe_open):
            with pytest.raises(lmc.UsageError, match=known + advice):
                call(tmp_path / "w.lmc", framework)
    with pytest.raises(lmc.UsageError, match=r"='pt': lmc.numpy has 'np' \(also 'numpy'\); use lmc.safe_open$"):
        lmc.numpy.safe_open(tmp_path / "w.lmc", "pt")
    with pytest.raises(TypeError):
        lmc.safe_open(tmp_path / "w.lmc")
