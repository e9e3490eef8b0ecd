"""Files and streams."""

import io
import os
import socket
import stat

import lmc
import lmc.numpy
import numpy as np
import pytest


@pytest.fixture
def path(raw, tmp_path):
    path = tmp_path / "raw"
    path.write_bytes(raw)
    return path


def test_file_to_file(path, raw, tmp_path):
    os.chmod(path, 0o640)
    os.utime(path, ns=(10**18, 10**18))
    done = lmc.compress_file(path, tmp_path / "raw.lmc", dtype="F32", threads=2)
    file = (tmp_path / "raw.lmc").read_bytes()
    assert file == lmc.compress(raw, dtype="F32")
    assert (done.raw_size, done.compressed_size) == (len(raw), len(file))
    back = lmc.decompress_file(str(tmp_path / "raw.lmc"), str(tmp_path / "back"), threads=2)
    assert (tmp_path / "back").read_bytes() == raw
    assert (back.content_hash, back.blocks) == (done.content_hash, done.blocks)
    for made in ("raw.lmc", "back"):
        found = os.stat(tmp_path / made)
        assert (stat.S_IMODE(found.st_mode), found.st_mtime_ns) == (0o640, 10**18)
    assert sorted(os.listdir(tmp_path)) == ["back", "raw", "raw.lmc"]


def test_delta_files(path, later, tmp_path):
    new = tmp_path / "new"
    new.write_bytes(later.tobytes())
    lmc.compress_file(new, tmp_path / "delta", base=path)
    with lmc.open(tmp_path / "delta") as f:
        assert [b.name for b in f.bases] == ["raw"]
    with pytest.raises(lmc.BaseMismatchError):
        lmc.decompress_file(tmp_path / "delta", tmp_path / "back")
    assert not (tmp_path / "back").exists()
    lmc.decompress_file(tmp_path / "delta", tmp_path / "back", base=path)
    assert (tmp_path / "back").read_bytes() == later.tobytes()


def test_overwriting(path, raw, tmp_path):
    dst = tmp_path / "dst"
    dst.write_bytes(b"old")
    for overwrite in (lmc.compress_file, lmc.decompress_file):
        src = path if overwrite is lmc.compress_file else tmp_path / "good.lmc"
        (tmp_path / "good.lmc").write_bytes(lmc.compress(raw))
        with pytest.raises(FileExistsError) as e:
            overwrite(src, dst, overwrite=False)
        assert (e.value.kind, isinstance(e.value, lmc.Error)) == ("exists", True)
        assert dst.read_bytes() == b"old"
    lmc.compress_file(path, dst)
    assert lmc.decompress(dst.read_bytes()) == raw


def test_onto_itself(path, raw, tmp_path):
    os.link(path, tmp_path / "link")
    for dst in (path, tmp_path / "link"):
        with pytest.raises(lmc.UsageError, match="is the input file"):
            lmc.compress_file(path, dst)
    assert path.read_bytes() == raw


@pytest.mark.parametrize("source", ["path", "object", "the same object"])
def test_streams_onto_themselves(path, raw, tmp_path, source):
    compressed = tmp_path / "raw.lmc"
    compressed.write_bytes(lmc.compress(raw))
    os.link(path, tmp_path / "link")
    for work, name, dst in (
        (lmc.compress_stream, path, path),
        (lmc.compress_stream, path, tmp_path / "link"),
        (lmc.decompress_stream, compressed, compressed),
    ):
        before = name.read_bytes()
        with open(dst, "r+b", buffering=0) as to, open(name, "rb") as opened:
            src = {"path": name, "object": opened, "the same object": to}[source]
            with pytest.raises(lmc.UsageError, match="is the input file .*: write to another file"):
                work(src, to)
        assert name.read_bytes() == before


def test_a_socket_may_be_both_ends(raw):
    ours, theirs = socket.socketpair()
    with ours, theirs, theirs.makefile("rwb") as both:
        ours.sendall(b"few bytes")
        ours.shutdown(socket.SHUT_WR)
        assert lmc.compress_stream(both, both).raw_size == 9
        both.flush()
        theirs.shutdown(socket.SHUT_WR)
        assert lmc.decompress(ours.makefile("rb").read()) == b"few bytes"


@pytest.mark.parametrize("kind", ["FIFO", "device", "socket", "link to a FIFO"])
def test_what_is_no_file_is_not_replaced(path, raw, tmp_path, kind):
    there = tmp_path / "there"
    if kind == "device":
        there.symlink_to("/dev/null")
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as s:
            s.bind(str(there))
    elif kind == "FIFO":
        os.mkfifo(there)
    else:
        os.mkfifo(tmp_path / "fifo")
        there.symlink_to("fifo")
    before = (os.lstat(there).st_ino, os.lstat(there).st_mode)
    (tmp_path / "raw.lmc").write_bytes(lmc.compress(raw))
    store = lmc.Store.create(tmp_path / "store")
    store.save_files({"a": raw})
    array = np.zeros(10, np.float32)
    for write in (
        lambda: lmc.compress_file(path, there),
        lambda: lmc.decompress_file(tmp_path / "raw.lmc", there),
        lambda: lmc.compress_stream(io.BytesIO(raw), there),
        lambda: lmc.compress_tensors_file([("a", "F32", (10,), array)], there),
        lambda: lmc.numpy.save_file({"a": array}, there),
        lambda: store.open_snapshot().restore("a", there),
    ):
        with pytest.raises(lmc.UsageError, match="there: is a FIFO, a device or a socket.*: write to a file$"):
            write()
        assert (os.lstat(there).st_ino, os.lstat(there).st_mode) == before


def test_errors_leave_nothing(path, raw, tmp_path):
    damaged = bytearray(lmc.compress(raw))
    damaged[len(damaged) // 2] ^= 1
    (tmp_path / "damaged").write_bytes(damaged)
    (tmp_path / "there").write_bytes(b"old")
    before = sorted(os.listdir(tmp_path))
    for dst in ("new", "there"):
        with pytest.raises(lmc.DamagedError):
            lmc.decompress_file(tmp_path / "damaged", tmp_path / dst)
    with pytest.raises(lmc.UnsupportedError):
        lmc.decompress_file(path, tmp_path / "new")
    with pytest.raises(lmc.LimitError):
        (tmp_path / "damaged").write_bytes(lmc.compress(raw))
        lmc.decompress_file(tmp_path / "damaged", tmp_path / "new", max_size=5)
    assert sorted(os.listdir(tmp_path)) == before
    assert (tmp_path / "there").read_bytes() == b"old"


def test_paths_that_do_not_do(path, tmp_path):
    with pytest.raises(FileNotFoundError):
        lmc.compress_file(tmp_path / "missing", tmp_path / "new")
    with pytest.raises(FileNotFoundError):
        lmc.compress_file(path, tmp_path / "no" / "directory")
    with pytest.raises(lmc.IOError):
        lmc.compress_file(path, tmp_path)
    for src, dst in ((3, path), (path, None), (b"raw", path), (io.BytesIO(), path)):
        with pytest.raises(TypeError):
            lmc.compress_file(src, dst)
        with pytest.raises(TypeError):
            lmc.decompress_file(src, dst)


def test_streams(path, raw, tmp_path):
    for src in (path, str(path), "object", "raw object"):
        for dst in (tmp_path / "file.lmc", "object", "raw object"):
            done = through(lmc.compress_stream, src, dst, path)
            file = done.bytes
            assert done.summary.raw_size == len(raw)
            assert lmc.decompress(file) == raw
            assert done.summary.compressed_size == len(file)
    (tmp_path / "file.lmc").write_bytes(file)
    for src in (tmp_path / "file.lmc", "object", "raw object"):
        for dst in (tmp_path / "back", "object", "raw object"):
            done = through(lmc.decompress_stream, src, dst, tmp_path / "file.lmc")
            assert done.bytes == raw


class through:
    """Calls a function with a source and a destination of some kind."""

    def __init__(self, function, src, dst, path):
        source = src
        if src == "object":
            source = io.BytesIO(path.read_bytes())
        elif src == "raw object":
            source = Dribble(path.read_bytes())
        target = dst
        if dst == "object":
            target = io.BytesIO()
        elif dst == "raw object":
            target = Dribble(b"")
        self.summary = function(source, target)
        self.bytes = target.getvalue() if isinstance(target, io.BytesIO) else dst.read_bytes()


class Dribble(io.BytesIO):
    """Reads and writes less than requested, as sockets do."""

    def read(self, size=-1):
        return super().read(min(size, 100_000))

    def write(self, data):
        return super().write(data[:70_000])


def test_stream_deltas(path, raw, later):
    out, back = io.BytesIO(), io.BytesIO()
    lmc.compress_stream(io.BytesIO(later.tobytes()), out, dtype="F32", base=path)
    assert len(out.getvalue()) < 0.6 * len(lmc.compress(later, dtype="F32"))
    lmc.decompress_stream(io.BytesIO(out.getvalue()), back, base=raw)
    assert back.getvalue() == later.tobytes()


def test_what_file_objects_raise_is_raised(raw, tmp_path):
    class Broken:
        def read(self, size):
            raise ZeroDivisionError("while reading")

        def write(self, data):
            raise ZeroDivisionError("while writing")

    with pytest.raises(ZeroDivisionError, match="while reading"):
        lmc.compress_stream(Broken(), io.BytesIO())
    with pytest.raises(ZeroDivisionError, match="while reading"):
        lmc.decompress_stream(Broken(), tmp_path / "new")
    with pytest.raises(ZeroDivisionError, match="while writing"):
        lmc.compress_stream(io.BytesIO(raw), Broken())
    with pytest.raises(ZeroDivisionError, match="while writing"):
        lmc.decompress_stream(io.BytesIO(lmc.compress(raw)), Broken())
    assert os.listdir(tmp_path) == []


def test_file_objects_that_break_the_protocol(raw):
    class Odd:
        def __init__(self, answer):
            self.answer = answer

        def read(self, size):
            return self.answer(size)

        def write(self, data):
            return self.answer(len(data))

    text, nothing, too_much = (lambda n: "text"), (lambda n: None), (lambda n: bytes(n + 1))
    for answer, error in [(text, TypeError), (nothing, TypeError), (too_much, OSError)]:
        with pytest.raises(error):
            lmc.compress_stream(Odd(answer), io.BytesIO())
    for answer, error in [(text, TypeError), (lambda n: n + 1, OSError), (lambda n: 0, OSError)]:
        with pytest.raises(error):
            lmc.compress_stream(io.BytesIO(raw), Odd(answer))
    for src, dst in ((3, io.BytesIO()), (io.BytesIO(), 3), (object(), object())):
        with pytest.raises(TypeError):
            lmc.compress_stream(src, dst)
        with pytest.raises(TypeError):
            lmc.decompress_stream(src, dst)


def test_raw_files_that_are_not_ready(raw):
    """What a pipe has no room for is not taken as written, and what is not there yet not as the end."""
    file = lmc.compress(raw)
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    with open(reading, "rb", buffering=0) as empty, open(writing, "wb", buffering=0) as full:
        for stream in (lmc.compress_stream, lmc.decompress_stream):
            with pytest.raises(BlockingIOError, match="set_blocking"):
                stream(empty, io.BytesIO())
        for stream, data in ((lmc.compress_stream, raw), (lmc.decompress_stream, file)):
            with pytest.raises(BlockingIOError, match="set_blocking"):
                stream(io.BytesIO(data), full)


def test_objects_that_return_nothing_have_written_all(raw):
    class Simple:
        def __init__(self):
            self.written = b""

        def write(self, data):
            self.written += data

    out = Simple()
    lmc.compress_stream(io.BytesIO(raw), out)
    # Of a stream the header is written before it is known what blocks need.
    assert out.written[16:] == lmc.compress(raw)[16:]


def test_damaged_streams(raw):
    file = lmc.compress(raw)
    for bad in (file[:-1], b"", file + b"x"):
        with pytest.raises(lmc.FormatError):
            lmc.decompress_stream(io.BytesIO(bad), io.BytesIO())
    with pytest.raises(lmc.LimitError):
        lmc.decompress_stream(io.BytesIO(file), io.BytesIO(), max_size=len(raw) - 1)


LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:abab\nsize 4976698672\n"


@pytest.mark.parametrize(
    ("name", "data", "what"),
    [
        ("a.safetensors", LFS, "a Git LFS pointer, and the file of 4976698672 bytes"),
        ("a.gguf", b"<!DOCTYPE html><html>", "a web page"),
        ("a.npz", b"PK\x03\x04" + bytes(99), "a zip archive without its end"),
        ("a.pt", b"", "empty"),
    ],
)
def test_what_is_no_model_is_said(name, data, what, tmp_path):
    source, made = tmp_path / name, tmp_path / "made.lmc"
    source.write_bytes(data)
    with pytest.warns(UserWarning, match=f"{name}: it is {what}.*; it is compressed as it is"):
        lmc.compress_file(source, made)
    assert lmc.decompress(made.read_bytes()) == data
    with pytest.warns(UserWarning, match=what):
        lmc.compress_stream(source, io.BytesIO())
    store = lmc.Store.create(tmp_path / "store")
    with pytest.warns(UserWarning, match=f"it is {what}.*; it is stored as it is"):
        store.save_files([source])
    with pytest.warns(UserWarning, match=what):
        store.save_shard({"other": source}, step=7)


def test_a_pipeline_of_links_is_saved(tmp_path):
    hub = tmp_path / "hub"
    for number, part in enumerate(["unet", "vae"]):
        blob = hub / "blobs" / str(number)
        blob.parent.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(bytes([number]) * 9)
        (hub / "snapshots" / part).mkdir(parents=True)
        (hub / "snapshots" / part / "config.json").symlink_to(blob)
    store = lmc.Store.create(tmp_path / "store")
    store.save_files([hub / "snapshots"])
    store.restore(tmp_path / "back")
    restored = [(tmp_path / "back" / part / "config.json").read_bytes() for part in ["unet", "vae"]]
    assert restored == [b"\0" * 9, b"\1" * 9]
    with pytest.raises(lmc.UsageError, match="two files are named .config.json.: name the directory that both are in"):
        store.save_files([hub / "snapshots" / part / "config.json" for part in ["unet", "vae"]])
