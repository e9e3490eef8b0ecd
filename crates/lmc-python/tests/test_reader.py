"""What an open file restores to, as a file object: `lmc.open(…).open()`."""

import io
import pickle
import random
import tarfile
import threading
import zipfile
from pathlib import Path

import lmc
import numpy as np
import pytest
from conftest import weights
from lmc._reader import reader

LAYOUTS = Path(__file__).resolve().parents[3] / "testdata" / "layouts"


@pytest.fixture(scope="module")
def large():
    """12 MiB, more than are decoded ahead, and not a multiple of anything."""
    return weights(3 << 20, 5).tobytes() + b"end"


@pytest.fixture(scope="module")
def compressed(large):
    return lmc.compress(large)


@pytest.fixture
def opened(compressed):
    return lmc.open(compressed).open()


def sources(large, compressed):
    yield lmc.open(compressed)
    yield lmc.open(large, plain=True)
    base = bytes(1000) + large[1000:]
    yield lmc.open(lmc.compress(large, base=base), base=base)


def test_it_reads_as_any_other_file(large, compressed):
    choose = random.Random(7)
    for source in sources(large, compressed):
        ours, theirs = source.open(), io.BytesIO(large)
        for _ in range(300):
            size = choose.choice([0, 1, 100, 300_000, (1 << 20) + 1, 9 << 20])
            at = choose.choice([0, 5, (1 << 20) - 1, 1 << 20, 8 << 20, len(large) - 10, len(large), len(large) + 5])
            match choose.randrange(6):
                case 0:
                    assert ours.seek(at) == theirs.seek(at)
                case 1:
                    assert ours.seek(-min(at, theirs.tell()), 1) == theirs.seek(-min(at, theirs.tell()), 1)
                case 2:
                    assert ours.seek(-min(at, len(large)), 2) == theirs.seek(-min(at, len(large)), 2)
                case 3:
                    a, b = bytearray(size), bytearray(size)
                    assert (ours.readinto(a), a) == (theirs.readinto(b), b)
                case 4:
                    assert ours.readline(size) == theirs.readline(size)
                case 5:
                    assert ours.read(size) == theirs.read(size)
            assert ours.tell() == theirs.tell()
        assert ours.seek(3) == 3
        assert ours.read() == large[3:]


def test_nothing_is_beyond_the_end(opened, large):
    assert opened.read() == large
    assert (opened.read(), opened.read(1), opened.readinto(bytearray(9)), opened.peek(), opened.raw.readall()) == (
        b"", b"", 0, b"", b"",
    )  # fmt: skip
    assert opened.seek(1 << 40) == 1 << 40
    assert (opened.read(), opened.read(1), opened.raw.read()) == (b"", b"", b"")
    with lmc.open(lmc.compress(b"")) as empty:
        assert empty.open().read() == b""


@pytest.mark.parametrize("offset, whence", [(-1, 0), (-20 << 20, 1), (-20 << 20, 2), (0, 9)])
def test_positions_that_there_are_not(opened, large, offset, whence):
    opened.seek(10)
    for file in (opened, opened.raw):
        with pytest.raises(ValueError):
            file.seek(offset, whence)
    assert opened.read(3) == large[10:13]


def test_what_it_can_do(opened, compressed, tmp_path):
    assert (opened.readable(), opened.seekable(), opened.writable(), opened.isatty()) == (True, True, False, False)
    assert opened.mode == "rb"
    assert not hasattr(opened, "name")
    for refused in (lambda: opened.write(b""), opened.fileno, opened.truncate):
        with pytest.raises(io.UnsupportedOperation):
            refused()
    path = tmp_path / "w.lmc"
    path.write_bytes(compressed)
    with lmc.open(path) as file:
        assert file.open().name == str(path)


def test_closing(compressed, large):
    file = lmc.open(compressed)
    with file.open() as first, file.open() as second:
        first.read(10)
        assert second.read(10) == large[:10]
    for use in (first.read, first.tell, lambda: first.seek(0), first.readable, first.raw.readall):
        with pytest.raises(ValueError, match="closed"):
            use()
    third = file.open()
    assert third.read(10) == large[:10]
    file.close()
    third.seek(9 << 20)
    with pytest.raises(lmc.UsageError, match="the file is closed"):
        third.read(10)
    with pytest.raises(lmc.UsageError, match="the file is closed"):
        file.open()


def test_damage_is_found_where_it_is(compressed, large):
    damaged = bytearray(compressed)
    damaged[len(damaged) // 2] ^= 1
    opened = lmc.open(damaged).open()
    assert opened.read(1 << 20) == large[: 1 << 20]
    with pytest.raises(lmc.DamagedError):
        opened.read()
    opened.seek(-5, 2)
    assert opened.read() == large[-5:]


def test_without_its_base():
    delta = lmc.compress(bytes(range(256)) * 9, base=bytes(range(256)) * 8)
    with lmc.open(delta) as file, pytest.raises(lmc.BaseMismatchError):
        file.open().read(1)


def test_several_threads(compressed, large):
    file, found = lmc.open(compressed), []

    def read():
        own = file.open()
        for at in range(0, len(large), 1 << 20):
            own.seek(at)
            found.append(own.read(1000) == large[at : at + 1000])

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4 * 13 and all(found)


def test_blocks_are_decoded_ahead_and_once():
    class Recorded:
        size, name, asked = (30 << 20) + 5, None, []

        def read_range_into(self, at, out):
            self.asked.append((at, len(out)))

    file = reader(Recorded())
    file.read(1)
    assert Recorded.asked == [(0, 1 << 20)]
    while file.read(10_000):
        pass
    ends = [at + size for at, size in Recorded.asked]
    assert [at for at, _ in Recorded.asked] == [0, *ends[:-1]]
    assert ends[-1] == Recorded.size
    assert all(at % (1 << 20) == 0 for at, _ in Recorded.asked)
    assert max(size for _, size in Recorded.asked) == 8 << 20
    Recorded.asked.clear()
    file.seek(5 << 20)
    file.read(1)
    file.seek(3)
    file.readinto(bytearray(20 << 20))
    assert Recorded.asked == [(5 << 20, 1 << 20), (3, 20 << 20)]


@pytest.mark.parametrize("name", ["f32.npy", "fortran-f64.npy", "version3.npy", "scalar-i64.npy"])
def test_numpy_loads_it(name):
    data = (LAYOUTS / name).read_bytes()
    with lmc.open(lmc.compress(data)) as file, file.open() as opened:
        assert np.array_equal(np.load(opened), np.load(io.BytesIO(data)))


@pytest.mark.parametrize("name", ["arrays.npz", "compressed.npz"])
def test_numpy_loads_several(name):
    data = (LAYOUTS / name).read_bytes()
    with lmc.open(lmc.compress(data)) as file, np.load(file.open()) as ours, np.load(io.BytesIO(data)) as theirs:
        assert ours.files == theirs.files
        assert all(np.array_equal(ours[key], theirs[key]) for key in theirs)


def test_programs_of_python_read_it(raw, tmp_path):
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as z:
        z.writestr("a", raw)
        z.writestr("b", b"small")
    with lmc.open(lmc.compress(archive.getvalue())) as file, zipfile.ZipFile(file.open()) as z:
        assert (z.read("b"), z.read("a")) == (b"small", raw)
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as t:
        found = tarfile.TarInfo("a")
        found.size = len(raw)
        t.addfile(found, io.BytesIO(raw))
    with lmc.open(lmc.compress(archive.getvalue())) as file, tarfile.open(fileobj=file.open()) as t:
        assert t.extractfile("a").read() == raw
    state = {"raw": raw, "list": list(range(10_000))}
    with lmc.open(lmc.compress(pickle.dumps(state))) as file:
        assert pickle.load(file.open()) == state


def test_it_is_a_source(compressed, large):
    """Also of lmc."""
    with lmc.open(lmc.compress(compressed)) as outer, lmc.open(outer.open()) as inner:
        assert inner.open().read() == large


def test_a_file_is_a_mapping_of_its_tensors():
    given = [("a", "F32", (10,), weights(10)), ("b", "U8", (3,), b"abc")]
    with lmc.open(lmc.compress_tensors(given)) as file:
        assert (len(file), list(file), "a" in file, "c" in file) == (2, file.keys(), True, False)
        assert dict(file) == {name: bytes(memoryview(data).cast("B")) for name, _, _, data in given}
        assert file["b"] == b"abc" == file.read("b")
        with pytest.raises(LookupError) as raised:
            file["c"]
        assert isinstance(raised.value, lmc.NotFoundError)
        with pytest.raises(TypeError):
            file[0]
    for use in (lambda: file["a"], lambda: len(file), lambda: iter(file)):
        with pytest.raises(lmc.UsageError, match="closed"):
            use()
    with lmc.open(lmc.compress(b"no tensors")) as file:
        assert dict(file) == {}
