"""Open files."""

import io
import mmap
import pathlib

import lmc
import numpy as np
import pytest
from conftest import weights


@pytest.fixture(scope="module")
def tensors():
    return {
        "w": weights(1 << 19, 1).reshape(1 << 9, 1 << 10),
        "small": weights(10, 2),
        "none": np.zeros((0, 5), np.float16),
        "scalar": np.array(7, np.int64),
    }


@pytest.fixture(scope="module")
def file(tensors):
    return lmc.compress_tensors([(n, {"f": "F", "i": "I"}[t.dtype.kind] + str(8 * t.itemsize), t.shape, t)
                                 for n, t in tensors.items()], metadata={"step": "7"})  # fmt: skip


@pytest.fixture
def path(file, tmp_path):
    path = tmp_path / "model.safetensors.lmc"
    path.write_bytes(file)
    return path


def test_what_is_inside(path, file, tensors):
    with lmc.open(path) as f:
        assert sorted(f.keys()) == sorted(tensors)
        assert [t.name for t in f.tensors()] == f.keys()
        assert "w" in f
        assert "v" not in f
        w = f.tensor("w")
        assert (w.name, w.dtype, w.shape, w.nbytes) == ("w", "F32", (512, 1024), 1 << 21)
        assert f.read_range(w.offset, 8) == tensors["w"].tobytes()[:8]
        assert (f.tensor("none").shape, f.tensor("scalar").shape) == ((0, 5), ())
        assert (f.layout, f.compressed, f.bases) == ("safetensors", True, [])
        assert (f.size, f.compressed_size) == (len(lmc.decompress(file)), len(file))
        assert isinstance(f.name, pathlib.Path)
        assert f.name == path
    with lmc.open(io.BytesIO(file)) as other, lmc.open(path) as f:
        assert other.content_hash == f.content_hash
        assert len(f.content_hash) == 32
        assert other.name is None


def test_dtypes_of_other_versions(tmp_path):
    data = weights(1000, 3).tobytes()
    header = (
        '{"n":{"dtype":"F12_X","shape":[4,2],"data_offsets":[0,12]},'
        '"w":{"dtype":"F32B","shape":[1000],"data_offsets":[12,4012]}}'
    )
    raw = len(header).to_bytes(8, "little") + header.encode() + b"twelve bytes" + data
    file = lmc.compress(raw)
    assert lmc.decompress(file) == raw
    with lmc.open(file) as f:
        assert [(t.name, t.dtype, t.shape, t.nbytes) for t in f.tensors()] == [
            ("n", "F12_X", (4, 2), 12),
            ("w", "F32B", (1000,), 4000),
        ]
        assert (f.read("n"), f.read("w")) == (b"twelve bytes", data)
    path = tmp_path / "model.safetensors"
    path.write_bytes(raw)
    store = lmc.Store.create(tmp_path / "store")
    store.save_files([path], step=1)
    reader = store.open_snapshot(1)
    assert (reader.tensor("n").dtype, reader.read("n"), reader.tensor("w").shape) == ("F12_X", b"twelve bytes", (1000,))
    assert reader.read_file("model.safetensors") == raw


def sources(path, file):
    yield path
    yield str(path)
    yield file
    yield bytearray(file)
    yield io.BytesIO(file)
    yield open(path, "rb")
    with open(path, "rb") as f:
        yield mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
    yield open(path, "rb", buffering=0)


def test_reading_from_every_source(path, file, tensors):
    raw = lmc.decompress(file)
    for source in sources(path, file):
        with lmc.open(source, threads=2) as f:
            for name, t in tensors.items():
                assert f.read(name) == t.tobytes()
                out = np.ones_like(t)
                assert f.read_into(name, out) == t.nbytes
                assert np.array_equal(out, t)
            assert f.read_rows("w", 3, 500) == tensors["w"][3:500].tobytes()
            assert f.read_rows("w", 4, 4) == b""
            out = np.empty((2, 1024), np.float32)
            assert f.read_rows_into("w", 510, 512, out) == out.nbytes
            assert np.array_equal(out, tensors["w"][510:])
            assert f.read_range(0, len(raw)) == raw
            out = bytearray(1000)
            assert f.read_range_into(77, out) == 1000
            assert out == raw[77:1077]


def test_many_at_once(path, tensors):
    with lmc.open(path, threads=2) as f:
        outs = {name: np.ones_like(t) for name, t in tensors.items()}
        rows = np.empty((5, 1024), np.float32)
        wanted = [*outs.items(), ("w", 100, 105, rows)]
        assert f.read_many_into(iter(wanted)) == sum(t.nbytes for t in tensors.values()) + rows.nbytes
        assert all(np.array_equal(outs[name], t) for name, t in tensors.items())
        assert np.array_equal(rows, tensors["w"][100:105])
        assert f.read_many_into([]) == 0
        with pytest.raises(lmc.UsageError, match="share memory"):
            f.read_many_into([("small", outs["w"][0, :10]), ("small", outs["w"][0, 9:19])])
        with pytest.raises(lmc.UsageError, match="items"):
            f.read_many_into([("w", 1, outs["w"])])
        with pytest.raises(lmc.UsageError, match="out has"):
            f.read_many_into([("w", outs["small"])])
        with pytest.raises(lmc.NotFoundError):
            f.read_many_into([("nothing", outs["small"])])
        for wrong in (3, [3], [(1, outs["small"])]):
            with pytest.raises(TypeError):
                f.read_many_into(wrong)


def test_many_ranges_at_once(path, file, tensors):
    raw = lmc.decompress(file)
    wanted = [(0, 100), (len(raw) - 7, 7), (5, 0), (3, len(raw) - 3), (1 << 20, 1 << 20)]
    for source in (path, io.BytesIO(raw)):
        with lmc.open(source, plain=True) as f:
            outs = [bytearray(n) for _, n in wanted]
            asked = zip((offset for offset, _ in wanted), outs, strict=True)
            assert f.read_ranges_into(asked) == sum(n for _, n in wanted)
            assert outs == [raw[offset : offset + n] for offset, n in wanted]
            assert f.read_ranges_into([]) == 0
            for beyond in ((len(raw), 1), (1 << 63, 1), (len(raw) - 1, 2)):
                with pytest.raises(lmc.UsageError, match="are not in a file of"):
                    f.read_ranges_into([(beyond[0], bytearray(beyond[1]))])
            both = memoryview(bytearray(10))
            with pytest.raises(lmc.UsageError, match="share memory"):
                f.read_ranges_into([(0, both[:6]), (0, both[5:])])
            with pytest.raises(TypeError):
                f.read_ranges_into([("w", bytearray(1))])


def test_what_is_not_there(path):
    with lmc.open(path) as f:
        for ask in (f.tensor, f.read, lambda n: f.read_into(n, bytearray(4)), lambda n: f.read_rows(n, 0, 1)):
            with pytest.raises(lmc.NotFoundError, match='\'?"nothing"') as e:
                ask("nothing")
            assert (e.value.kind, isinstance(e.value, LookupError)) == ("not_found", True)
        for rows in ((0, 513), (5, 4)):
            with pytest.raises(lmc.UsageError, match="no rows"):
                f.read_rows("w", *rows)
        with pytest.raises(lmc.UsageError, match="no rows"):
            f.read_rows("scalar", 0, 1)
        for offset, size in ((f.size, 1), (0, f.size + 1), (2**64 - 1, 2)):
            with pytest.raises(lmc.UsageError):
                f.read_range(offset, size)
        with pytest.raises(lmc.UsageError, match="offset=-1: must be from 0"):
            f.read_range(-1, 2)
        with pytest.raises(lmc.UsageError, match="out has"):
            f.read_into("small", bytearray(39))
        with pytest.raises(lmc.UsageError, match="writable"):
            f.read_into("small", bytes(40))
        with pytest.raises(TypeError):
            f.read(3)


def test_closed(path):
    f = lmc.open(path)
    assert not f.closed
    f.close()
    f.close()
    assert f.closed
    uses = [
        f.keys,
        f.tensors,
        f.__enter__,
        lambda: f.read("w"),
        lambda: f.size,
        lambda: f.read_into("small", bytearray(40)),
        lambda: f.read_many_into([]),
        lambda: "w" in f,
    ]
    for use in uses:
        with pytest.raises(lmc.UsageError, match="closed") as e:
            use()
        assert isinstance(e.value, ValueError)
    assert "closed" in repr(f)
    with pytest.raises(KeyError), lmc.open(path) as f:
        raise KeyError
    assert f.closed


def test_paths_that_cannot_be_opened(tmp_path):
    with pytest.raises(FileNotFoundError) as e:
        lmc.open(tmp_path / "missing")
    assert isinstance(e.value, FileNotFoundError)
    assert isinstance(e.value, lmc.IOError)
    assert (e.value.kind, e.value.errno, e.value.filename) == ("io", 2, str(tmp_path / "missing"))
    with pytest.raises(lmc.IOError):
        lmc.open(tmp_path)
    with pytest.raises(lmc.IOError, match="regular"):
        lmc.open("/dev/null")
    for what in (3, None, object(), io.StringIO("text")):
        with pytest.raises(TypeError):
            lmc.open(what)


def test_what_a_file_object_raises_is_raised(file):
    class Broken(io.BytesIO):
        broken = False

        def read(self, size=-1):
            if self.broken:
                raise ZeroDivisionError("of the file object")
            return super().read(size)

    source = Broken(file)
    with lmc.open(source, threads=2) as f:
        source.broken = True
        with pytest.raises(ZeroDivisionError, match="of the file object"):
            f.read("w")
        source.broken = False
        assert len(f.read("small")) == 40


def test_a_file_that_becomes_shorter(path):
    with lmc.open(path) as f:
        with open(path, "r+b") as writer:
            writer.truncate(1000)
        with pytest.raises(lmc.IOError) as e:
            f.read("w")
        assert e.value.kind == "io"


def test_damage_is_located(file):
    damaged = bytearray(file)
    damaged[len(file) // 2] ^= 1
    with lmc.open(damaged) as f:
        assert f.read("small")
        with pytest.raises(lmc.DamagedError) as e:
            f.read("w")
        assert e.value.tensor == "w"


def test_deltas(array, later):
    delta = lmc.compress(later, dtype="F32", base=array)
    with lmc.open(delta) as f:
        assert [(b.size, len(b.content_hash)) for b in f.bases] == [(array.nbytes, 32)]
        with pytest.raises(lmc.BaseMismatchError):
            f.read("")
    with lmc.open(delta, base=array) as f:
        assert f.read("") == later.tobytes()
    with pytest.raises(lmc.BaseMismatchError):
        lmc.open(delta, base=later)


def test_a_base_that_is_not_needed(array, later, file, tmp_path):
    """A file may be opened with its base whether it needs it or not."""
    for whole in (lmc.compress(array, dtype="F32"), lmc.compress(array, dtype="F32", base=b"of no use")):
        out = bytearray(later.tobytes())
        with lmc.open(whole, base=out) as f:
            assert f.bases == [] and f.read("") == array.tobytes()
            f.read_into("", out)  # an unused buffer may be overwritten
            delta = lmc.compress(later, dtype="F32", base=f)
            with lmc.open(delta, base=f) as g:
                assert g.read("") == later.tobytes()
    raw = lmc.decompress(file)
    with lmc.open(raw, plain=True, base=b"") as plain:
        assert plain.read_range(0, plain.size) == raw
    with pytest.raises(FileNotFoundError):
        lmc.open(file, base=tmp_path / "missing")


def test_plain_files(file, tmp_path, tensors):
    raw = lmc.decompress(file)
    path = tmp_path / "model.safetensors"
    path.write_bytes(raw)
    with pytest.raises(lmc.UnsupportedError):
        lmc.open(path)
    with lmc.open(path, plain=True) as plain, lmc.open(file, plain=True) as f:
        assert (plain.compressed, f.compressed) == (False, True)
        assert plain.keys() == f.keys()
        assert (plain.size, plain.content_hash, plain.layout) == (f.size, f.content_hash, f.layout)
        assert plain.read_rows("w", 5, 9) == tensors["w"][5:9].tobytes()
    assert lmc.open(b"", plain=True).size == 0


def test_memory_that_is_read_is_not_written(file, tensors):
    """Neither the file's own name, nor those of its bases."""
    own = bytearray(file)
    base = bytearray(lmc.decompress(file))
    raw = bytes(base)
    delta = lmc.compress(raw[:-8] + bytes(8), base=raw)
    for f, memory in [(lmc.open(own), own), (lmc.open(delta, base=base), base)]:
        out = memoryview(memory)[: tensors["w"].nbytes]
        for read, *arguments in [
            (f.read_into, "w", out),
            (f.read_rows_into, "w", 0, 1, out[:4096]),
            (f.read_range_into, 0, out[:1000]),
            (f.read_many_into, [("w", out)]),
        ]:
            with pytest.raises(lmc.UsageError, match="shares memory"):
                read(*arguments)
    assert bytes(own) == file and bytes(base) == raw
