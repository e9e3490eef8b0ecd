"""`lmc.fsspec` with fsspec itself."""

import importlib.metadata
import io
import pickle

import fsspec
import lmc
import lmc.fsspec
import numpy as np
import pytest
from conftest import weights
from fsspec.implementations.memory import MemoryFile, MemoryFileSystem
from lmc.fsspec import LmcFileSystem

RAW = weights(3 << 20, 3).tobytes()


@pytest.fixture(autouse=True)
def memory():
    """The file system `memory://`, with some files."""
    fsspec.register_implementation("lmc", LmcFileSystem, clobber=True)
    fs = MemoryFileSystem()
    fs.pipe({"/d/w.lmc": lmc.compress(RAW), "/d/plain": b"as it is", "/d/e/small.lmc": lmc.compress(b"small")})
    yield fs
    fs.rm("/", recursive=True)


@pytest.mark.wheel
def test_fsspec_finds_the_file_system():
    (found,) = importlib.metadata.entry_points(group="fsspec.specs", name="lmc")
    assert found.load() is LmcFileSystem


@pytest.mark.parametrize("compression", ["lmc", "infer"])
def test_the_compression_reads_and_writes(compression, memory, tmp_path):
    for url in ("memory://new.lmc", f"file://{tmp_path}/new.lmc"):
        with fsspec.open(url, "wb", compression=compression) as file:
            for at in range(0, len(RAW), 1_000_001):
                file.write(RAW[at : at + 1_000_001])
        with fsspec.open(url, "rb") as file:
            assert lmc.decompress(file.read()) == RAW
        with fsspec.open(url, "rb", compression=compression) as file:
            assert file.seek(-10, 2) == len(RAW) - 10
            assert file.read() == RAW[-10:]
            file.seek(5)
            assert file.read() == RAW[5:]
    with fsspec.open("memory://text.lmc", "wt", compression=compression, encoding="utf-16") as file:
        file.write("one\ntwo…\n")
    with fsspec.open("memory://text.lmc", "rt", compression=compression, encoding="utf-16") as file:
        assert list(file) == ["one\n", "two…\n"]
    with memory.open("/empty.lmc", "wb", compression=compression):
        pass
    assert lmc.decompress(memory.cat("/empty.lmc")) == b""


def test_what_is_written_is_compressed_as_a_whole(memory):
    with memory.open("/a.npz.lmc", "wb", compression="lmc") as file:
        np.savez(file, w=weights(1000), v=weights(10))
    with lmc.open(memory.cat("/a.npz.lmc")) as file:
        assert sorted(file.keys()) == ["v", "w"]


def test_nothing_stays_in_the_folder_of_temporary_files(memory, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with memory.open("/a.lmc", "wb", compression="lmc") as file:
        file.write(b"a")
        assert len(list(tmp_path.iterdir())) == 1
    assert not list(tmp_path.iterdir())

    class Full(io.BytesIO):
        def write(self, _data):
            raise OSError(28, "No space left on device")

    file = fsspec.compression.compr["lmc"](Full(), mode="w")
    file.write(b"a")
    with pytest.raises(OSError, match="No space"):
        file.close()
    assert not list(tmp_path.iterdir())


def test_the_compression_takes_only_compressed_files():
    with pytest.raises(lmc.UnsupportedError), fsspec.open("memory://d/plain", compression="lmc"):
        pass


@pytest.mark.parametrize("url", ["lmc::memory://d/w.lmc", "lmc::memory:///d/w.lmc"])
def test_a_chain_reads_anywhere(url):
    with fsspec.open(url) as file:
        assert file.read() == RAW
        file.seek(7 << 20)
        assert file.read(100) == RAW[7 << 20 :][:100]
        assert file.read(0) == b""
    with pytest.raises(ValueError, match="closed"):
        file.read()
    again = pickle.loads(pickle.dumps(fsspec.open(url)))
    with again as file:
        assert file.read(10) == RAW[:10]


def test_a_few_bytes_do_not_need_the_whole_file(monkeypatch, memory):
    taken, read = [], MemoryFile.read
    monkeypatch.setattr(MemoryFile, "read", lambda self, size=-1: taken.append(size) or read(self, size))
    with fsspec.open("lmc::memory://d/w.lmc") as file:
        file.seek(7 << 20)
        assert file.read(100) == RAW[7 << 20 :][:100]
    assert all(size > 0 for size in taken)
    assert sum(taken) < memory.size("/d/w.lmc") / 4


def test_it_is_a_file_system(memory, tmp_path):
    fs = LmcFileSystem(memory)
    assert fs.info("/d/w.lmc") == memory.info("/d/w.lmc") | {"size": len(RAW)}
    assert (fs.size("d/w.lmc"), fs.size("/d/plain"), fs.isdir("/d"), fs.isfile("/d/w.lmc")) == (len(RAW), 8, True, True)
    assert {one["name"]: one["size"] for one in fs.ls("/d")} == {"/d/w.lmc": None, "/d/plain": 8, "/d/e": 0}
    assert fs.ls("/d", detail=False) == memory.ls("/d", detail=False)
    assert fs.glob("/d/**/*.lmc") == ["/d/e/small.lmc", "/d/w.lmc"]
    assert (fs.cat("/d/e/small.lmc"), fs.cat("/d/plain")) == (b"small", b"as it is")
    assert fs.cat_file("/d/w.lmc", 1000, 1010) == RAW[1000:1010]
    assert fs.cat_file("/d/w.lmc", -10) == RAW[-10:]
    assert fs.cat_ranges(["/d/w.lmc"], [5], [9]) == [RAW[5:9]]
    fs.get("/d/w.lmc", str(tmp_path / "w"))
    assert (tmp_path / "w").read_bytes() == RAW
    assert not fs.exists("/d/missing.lmc")
    opened = fsspec.open_files("lmc::memory://d/*.lmc")
    assert [file.path for file in opened] == ["/d/w.lmc"]
    with opened as (file,):
        assert file.read(10) == RAW[:10]


def test_a_delta(memory, tmp_path):
    base = tmp_path / "base"
    base.write_bytes(RAW)
    memory.pipe("/delta.lmc", lmc.compress(RAW[:-8] + bytes(8), base=RAW))
    with fsspec.open("lmc::memory://delta.lmc", base=base, threads=1) as file:
        assert file.read() == RAW[:-8] + bytes(8)
    with pytest.raises(lmc.BaseMismatchError), fsspec.open("lmc::memory://delta.lmc") as file:
        file.read(1)


def test_it_only_reads(memory):
    for mode in ("wb", "ab", "xb"):
        with pytest.raises(lmc.UsageError, match="only reads"), fsspec.open("lmc::memory://d/w.lmc", mode):
            pass
    for refused in (lambda fs: fs.rm("/d/w.lmc"), lambda fs: fs.mv("/d/w.lmc", "/d/v.lmc")):
        with pytest.raises((NotImplementedError, lmc.UsageError)):
            refused(LmcFileSystem(memory))
    assert lmc.decompress(memory.cat("/d/w.lmc")) == RAW
    with pytest.raises(lmc.UsageError, match="another file system"):
        LmcFileSystem()


def test_what_is_wrong_is_said(memory):
    damaged = bytearray(memory.cat("/d/w.lmc"))
    damaged[len(damaged) // 2] ^= 1
    memory.pipe("/damaged.lmc", bytes(damaged))
    memory.pipe("/cut.lmc", bytes(damaged[:1000]))
    with fsspec.open("lmc::memory://damaged.lmc") as file, pytest.raises(lmc.DamagedError):
        file.read()
    with fsspec.open("memory://damaged.lmc", compression="lmc") as file, pytest.raises(lmc.DamagedError):
        file.read()
    for url, options in (("lmc::memory://cut.lmc", {}), ("memory://cut.lmc", {"compression": "lmc"})):
        with pytest.raises(lmc.DamagedError), fsspec.open(url, **options):
            pass
    with pytest.raises(FileNotFoundError), fsspec.open("lmc::memory://missing.lmc"):
        pass
