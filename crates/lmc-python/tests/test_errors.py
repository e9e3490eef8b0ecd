"""The tree of exceptions, and that nothing else is raised."""

import array
import ctypes
import io
import pickle
import sys
from pathlib import Path

import lmc
import lmc.numpy
import numpy as np
import pytest
from lmc import _errors

KINDS = {
    "BaseMismatchError": ("base", ValueError),
    "DamagedError": ("damaged", ValueError),
    "ExistsError": ("exists", FileExistsError),
    "ExpiredError": ("expired", Exception),
    "FormatError": ("damaged", ValueError),
    "IOError": ("io", OSError),
    "InternalError": ("internal", RuntimeError),
    "LimitError": ("limit", Exception),
    "MissingFileError": ("io", FileNotFoundError),
    "NotFoundError": ("not_found", LookupError),
    "PermissionDeniedError": ("io", PermissionError),
    "StoreError": ("store", OSError),
    "UnsupportedError": ("unsupported", ValueError),
    "UsageError": ("usage", ValueError),
}


def test_every_exception_is_in_the_table():
    found = {n for n, of in vars(_errors).items() if isinstance(of, type) and issubclass(of, Exception)}
    assert found == KINDS.keys() | {"Error"}


@pytest.mark.parametrize("name", KINDS)
def test_kinds(name):
    kind, base = KINDS[name]
    exception = getattr(_errors, name)
    assert issubclass(exception, lmc.Error)
    assert issubclass(exception, base)
    assert exception("why").kind == kind


def test_exceptions_go_from_process_to_process():
    file = bytearray(lmc.compress(bytes(range(256)) * 10_000))
    file[len(file) // 2] ^= 1
    with pytest.raises(lmc.DamagedError) as e:
        lmc.decompress(file)
    copy = pickle.loads(pickle.dumps(e.value))
    assert type(copy) is lmc.DamagedError
    assert str(copy) == str(e.value)
    assert (copy.kind, copy.block, copy.offset) == ("damaged", e.value.block, e.value.offset)
    with pytest.raises(lmc.IOError) as e:
        lmc.open("missing")
    copy = pickle.loads(pickle.dumps(e.value))
    assert (type(copy), copy.errno, copy.filename) == (_errors.MissingFileError, 2, "missing")


def test_messages_are_one_line(tmp_path):
    for fail in (
        lambda: lmc.decompress(b"x"),
        lambda: lmc.open(tmp_path / "missing"),
        lambda: lmc.compress(b"", level="best"),
        lambda: lmc.Store(tmp_path / "missing"),
    ):
        with pytest.raises(lmc.Error) as e:
            fail()
        assert "\n" not in str(e.value)
        assert len(str(e.value)) > 10


def test_messages_name_the_file(tmp_path):
    raw = bytes(range(256)) * 10_000
    file = lmc.compress(raw)
    damaged = bytearray(file)
    damaged[len(file) // 2] ^= 1
    delta = lmc.compress(raw[:-1], base=raw)
    for name, data in {"cut": file[:-9], "other": b"none", "damaged": damaged, "delta": delta, "raw": raw[1:]}.items():
        (tmp_path / f"{name}.lmc").write_bytes(data)

    def read(name, **options):
        with lmc.open(tmp_path / f"{name}.lmc", **options) as f:
            f.read_range(0, f.size)

    def restore(name, to, **options):
        to(tmp_path / f"{name}.lmc", tmp_path / "restored", **options)

    ways = [read, lambda n, **o: restore(n, lmc.decompress_file, **o)]
    ways.append(lambda n, **o: restore(n, lambda s, _, **o: lmc.decompress_stream(s, io.BytesIO(), **o), **o))
    for way in ways:
        for name in ("cut", "other", "damaged", "delta"):
            with pytest.raises((lmc.FormatError, lmc.BaseMismatchError)) as e:
                way(name)
            assert str(e.value).startswith(str(tmp_path / f"{name}.lmc: ")), name
        # It is the base that is wrong, and is named.
        with pytest.raises(lmc.DamagedError) as e:
            way("delta", base=tmp_path / "cut.lmc")
        assert str(e.value).startswith(str(tmp_path / "cut.lmc: "))
    for base in (raw[1:], tmp_path / "raw.lmc"):
        with pytest.raises(lmc.BaseMismatchError, match="delta.lmc: "):
            read("delta", base=base)
    with pytest.raises(lmc.DamagedError) as e:
        lmc.decompress(damaged)
    assert "checksum of a block" in str(e.value) and e.value.block == 1
    assert not (tmp_path / "restored").exists()


HUGE = (-1, -(2**100), 2**100, 10**5000)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("numbers") / "w.lmc"
    lmc.numpy.save_file({"w": np.zeros((10, 3), np.float32)}, path)
    return path


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    store = lmc.Store.create(tmp_path_factory.mktemp("store") / "st")
    store.save_files({"x": b"x"}, step=1)
    return store


class TestNumbers:
    """None of them is an OverflowError."""

    def refused(self, name, call):
        for value in HUGE:
            shown = "(a number of many digits)" if value == 10**5000 else str(value)
            with pytest.raises(lmc.UsageError) as e:
                call(value)
            assert str(e.value).startswith(f"{name}={shown}: must be from "), str(e.value)
            assert "\n" not in str(e.value)

    def test_threads(self, path, store, tmp_path):
        file = path.read_bytes()
        tensors = [("w", "U8", (1,), b"x")]
        for call in (
            lambda n: lmc.compress(b"x", threads=n),
            lambda n: lmc.compress_into(b"x", bytearray(1000), threads=n),
            lambda n: lmc.decompress(file, threads=n),
            lambda n: lmc.decompress_into(file, bytearray(1000), threads=n),
            lambda n: lmc.estimate(b"x", threads=n),
            lambda n: lmc.compress_tensors(tensors, threads=n),
            lambda n: lmc.compress_tensors_file(tensors, tmp_path / "x", threads=n),
            lambda n: lmc.compress_file(path, tmp_path / "x", threads=n),
            lambda n: lmc.decompress_file(path, tmp_path / "x", threads=n),
            lambda n: lmc.compress_stream(path, tmp_path / "x", threads=n),
            lambda n: lmc.decompress_stream(path, tmp_path / "x", threads=n),
            lambda n: lmc.Compressor(threads=n),
            lambda n: lmc.Decompressor(threads=n),
            lambda n: lmc.open(path, threads=n),
            lambda n: lmc.numpy.load_file(path, threads=n),
            lambda n: lmc.numpy.save({"w": np.zeros(1)}, threads=n),
            lambda n: store.save_files({"y": b"y"}, threads=n),
            lambda n: store.save_shard({"y": b"y"}, step=2, threads=n),
            lambda n: store.open_snapshot(threads=n),
            lambda n: store.restore(tmp_path / "out", threads=n),
            lambda n: store.verify(threads=n),
            lambda n: store.prune(threads=n),
        ):
            self.refused("threads", call)
        with pytest.raises(lmc.UsageError, match=r"threads=1025: must be from 0 \(as many as .*\) to 1024"):
            lmc.compress(b"x", threads=1025)
        assert not list(tmp_path.iterdir())

    @pytest.mark.parametrize("limit", ["max_size", "max_work"])
    def test_limits(self, path, tmp_path, limit):
        file = path.read_bytes()
        for call in (
            lambda n: lmc.decompress(file, **{limit: n}),
            lambda n: lmc.decompress_file(path, tmp_path / "x", **{limit: n}),
            lambda n: lmc.decompress_stream(path, tmp_path / "x", **{limit: n}),
            lambda n: lmc.Decompressor(**{limit: n}),
        ):
            self.refused(limit, call)
        if limit == "max_work":
            self.refused(limit, lambda n: lmc.decompress_into(file, bytearray(1000), max_work=n))
            self.refused(limit, lambda n: lmc.open(path, max_work=n))
        assert not list(tmp_path.iterdir())

    def test_places_in_a_file(self, path, store):
        self.refused("size", lmc.compress_bound)
        out = bytearray(12)
        with lmc.open(path) as f:
            self.refused("start", lambda n: f.read_rows("w", n, 1))
            self.refused("stop", lambda n: f.read_rows("w", 0, n))
            self.refused("start", lambda n: f.read_rows_into("w", n, 1, out))
            self.refused("stop", lambda n: f.read_rows_into("w", 0, n, out))
            self.refused("start", lambda n: f.read_many_into([("w", n, 1, out)]))
            self.refused("stop", lambda n: f.read_many_into([("w", 0, n, out)]))
            self.refused("offset", lambda n: f.read_range(n, 1))
            self.refused("size", lambda n: f.read_range(0, n))
            self.refused("offset", lambda n: f.read_range_into(n, out))
            self.refused("offset", lambda n: f.read_ranges_into([(n, out)]))
        reader = store.open_snapshot()
        self.refused("start", lambda n: reader.read_rows("w", n, 1))
        self.refused("stop", lambda n: reader.read_rows("w", 0, n))
        self.refused("offset", lambda n: reader.read_range_into("x", n, out))

    def test_shapes(self):
        for n in HUGE:
            with pytest.raises(lmc.UsageError, match='a dimension of the tensor "w"=.*: must be from 0 to'):
                lmc.compress_tensors([("w", "U8", (n, 1), b"x")])

    def test_stores(self, store, tmp_path):
        self.refused("step", lambda n: store.save_files({"y": b"y"}, step=n))
        self.refused("step", lambda n: store.save_shard({"y": b"y"}, step=n))
        self.refused("step", lambda n: store.publish(n, []))
        self.refused("anchor_every", lambda n: store.save_files({"y": b"y"}, anchor_every=n))
        self.refused("anchor_every", lambda n: store.save_shard({"y": b"y"}, step=2, anchor_every=n))
        self.refused("at", store.find)
        self.refused("at", store.open_snapshot)
        self.refused("keep_last", lambda n: store.plan_prune(keep_last=n))
        self.refused("keep_every", lambda n: store.plan_prune(keep_every=n))
        self.refused("keep_within", lambda n: store.plan_prune(keep_within=n))
        self.refused("the number of keep_best", lambda n: store.plan_prune(keep_best=("loss", "min", n)))
        self.refused("keep_steps", lambda n: store.plan_prune(keep_steps=[n]))
        self.refused("drop", lambda n: store.plan_prune(drop=[n]))
        self.refused("keep_last", lambda n: store.prune(keep_last=n))
        self.refused("grace_seconds", lambda n: lmc.Store.create(tmp_path / "new", grace_seconds=n))
        self.refused("cache_size", lambda n: lmc.Store(tmp_path / "new", cache="memory", cache_size=n))
        assert not list(tmp_path.iterdir())
        with pytest.raises(TypeError, match="not list"):
            store.find([])

    def test_file_objects(self):
        class Odd(io.BytesIO):
            def seek(self, *_):
                return -1

            def write(self, _):
                return -1

        with pytest.raises(lmc.UsageError, match=r"result of seek\(\) of a file object=-1"):
            lmc.open(Odd(b"x"))
        with pytest.raises(lmc.UsageError, match=r"result of write\(\) of a file object=-1"):
            lmc.compress_stream(io.BytesIO(b"x"), Odd())

    def test_what_is_no_number_is_a_type_error(self, path):
        for call in (lambda: lmc.compress(b"x", threads="2"), lambda: lmc.decompress(b"x", max_size=1.5)):
            with pytest.raises(TypeError):
                call()


class Tensor:
    """Like one of torch."""

    def data_ptr(self):
        return 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: lmc.compress("s.pt"), "not str: lmc.compress_file takes paths"),
        (lambda: lmc.compress(Path("s.pt")), "Path: lmc.compress_file takes paths"),
        (lambda: lmc.Compressor().compress_into("s.pt", bytearray(9)), "not str: lmc.compress_file takes paths"),
        (lambda: lmc.decompress("s.pt.lmc"), "not str: lmc.decompress_file takes paths"),
        (lambda: lmc.decompress_into("s.pt.lmc", bytearray(9)), "not str: lmc.decompress_file takes paths"),
        (lambda: lmc.Decompressor().decompress("s.pt.lmc"), "not str: lmc.decompress_file takes paths"),
        (lambda: lmc.compress(io.BytesIO(b"x")), "not BytesIO: lmc.compress_stream takes file objects"),
        (lambda: lmc.decompress(io.BytesIO(b"x")), "not BytesIO: lmc.decompress_stream takes file objects"),
        (lambda: lmc.compress(Tensor()), "not Tensor: lmc.torch.save_file and lmc.numpy.save_file take tensors by nam"),
        (lambda: lmc.compress({"w": Tensor()}), "not dict: lmc.torch.save_file .* and lmc.Store.save a state"),
        (lambda: lmc.compress(7), "data must be a C-contiguous bytes-like object, not int$"),
        (lambda: lmc.decompress({}), "data must be a C-contiguous bytes-like object, not dict$"),
        (lambda: lmc.numpy.save({"w": np.zeros(1)}, {"loss": 2.31}), r'metadata\["loss"\] must be text, not float'),
        (lambda: lmc.compress_tensors([], metadata={"n": 1}), r'metadata\["n"\] must be text, not int: use str\(\)'),
    ],
)
def test_a_wrong_type_names_what_to_call_instead(call, message):
    with pytest.raises(TypeError, match=message):
        call()


HALF = "half \ud800 of a pair"


def test_what_is_no_text_is_no_name(tmp_path):
    path = tmp_path / "w.lmc"
    lmc.numpy.save_file({"w": np.zeros(3, np.float32)}, path)
    store = lmc.Store.create(tmp_path / "st")
    store.save_files({"x": b"x"})
    tensors = [("w", "U8", (1,), b"x")]
    before = sorted(tmp_path.iterdir())
    with lmc.open(path) as f:
        reader = store.open_snapshot()
        for call in (
            lambda: lmc.compress_tensors([(HALF, "U8", (1,), b"x")]),
            lambda: lmc.compress_tensors([("w", HALF, (1,), b"x")]),
            lambda: lmc.compress_tensors(tensors, metadata={HALF: "x"}),
            lambda: lmc.compress_tensors(tensors, metadata={"x": HALF}),
            lambda: lmc.compress_tensors_file(tensors, tmp_path / "x", metadata={"x": HALF}),
            lambda: lmc.numpy.save({HALF: np.zeros(1)}),
            lambda: lmc.numpy.save_file({HALF: np.zeros(1)}, tmp_path / "x"),
            lambda: lmc.compress(b"x", level=HALF),
            lambda: lmc.compress(b"x", dtype=HALF),
            lambda: lmc.Base(b"x", name=HALF),
            lambda: f.read(HALF),
            lambda: f.read_into(HALF, bytearray(1)),
            lambda: f.read_many_into([(HALF, bytearray(1))]),
            lambda: f.tensor(HALF),
            lambda: HALF in f,
            lambda: lmc.open(HALF),
            lambda: lmc.compress_file(path, HALF),
            lambda: reader.read(HALF),
            lambda: reader.read_file(HALF),
            lambda: store.save_files({HALF: b"x"}),
            lambda: store.save_files({"x": (tensors, {"x": HALF})}),
            lambda: store.save_files({"x": b"x"}, metadata={"x": HALF}),
            lambda: store.save_files({"x": b"x"}, base=HALF),
            lambda: store.find(HALF),
            lambda: store.publish(2, [HALF]),
            lambda: store.restore(tmp_path / "out", names=[HALF]),
        ):
            with pytest.raises(lmc.UsageError, match=r"'half \\ud800 of a pair' is not text") as e:
                call()
            assert not isinstance(e.value, UnicodeError)
    assert sorted(tmp_path.iterdir()) == before


class Pointers(ctypes.Structure):
    _fields_ = [("number", ctypes.c_int), ("P", ctypes.POINTER(ctypes.c_int))]


NO_DATA = {
    "objects": np.array([1, "a"], dtype=object),
    "none of them": np.array([], dtype=object),
    "within records": np.zeros(2, [("a", "f4"), ("b", [("c", "i8"), ("d", "O")])]),
    "beside dates": np.zeros(2, [("when", "M8[s]"), ("what", "O")]),
    "a view": memoryview(np.array([1, "a"], dtype=object)),
    "of ctypes": (ctypes.py_object * 2)(1, 2),
    "pointers": (ctypes.c_void_p * 2)(),
    "text": (ctypes.c_char_p * 2)(),
    "structures": Pointers(),
    "functions": (ctypes.CFUNCTYPE(ctypes.c_int) * 2)(),
}


@pytest.mark.parametrize("kind", NO_DATA)
def test_what_holds_no_data_is_refused(kind, tmp_path):
    """Its elements are addresses, which are meaningless later, and must not be overwritten."""
    buffer = NO_DATA[kind]
    file = lmc.compress(bytes(16))
    store = lmc.Store.create(tmp_path / "st")
    opened = lmc.open(file)
    for call in (
        lambda: lmc.compress(buffer),
        lambda: lmc.compress_into(buffer, bytearray(1000)),
        lambda: lmc.compress_into(b"x", buffer),
        lambda: lmc.Compressor().compress(buffer),
        lambda: lmc.compress(b"x", base=buffer),
        lambda: lmc.decompress(buffer),
        lambda: lmc.decompress_into(file, buffer),
        lambda: lmc.estimate(buffer),
        lambda: lmc.open(buffer),
        lambda: lmc.Base(buffer, name="x"),
        lambda: lmc.compress_tensors([("w", "U8", (16,), buffer)]),
        lambda: opened.read_range_into(0, buffer),
        lambda: opened.read_ranges_into([(0, buffer)]),
        lambda: store.save_files({"x": buffer}),
        lambda: store.save_files({"x": [("w", "U8", (16,), buffer)]}),
    ):
        with pytest.raises(lmc.UsageError, match="holds (Python objects|addresses), not data"):
            call()


@pytest.mark.parametrize(
    "buffer",
    [
        np.zeros(2, "M8[s]"),
        np.zeros(2, [("O", "f4"), ("P", "i2")]),
        np.zeros(2, "c16"),
        np.array(["a", "OP"]),
        np.array([b"a", b"OP"]),
        np.zeros(2, [("when", "M8[s]"), ("O", "f4")]),
        np.zeros((2, 0)),
        array.array("u" if sys.version_info < (3, 13) else "w", "OP"),
        (ctypes.c_wchar * 2)("O", "P"),
        (ctypes.c_int * 2)(1, 2),
    ],
    ids=str,
)
def test_what_holds_data_is_not(buffer):
    raw = buffer.tobytes() if isinstance(buffer, np.ndarray) else bytes(buffer)
    assert lmc.decompress(lmc.compress(buffer)) == raw


@pytest.fixture(scope="module")
def delta(tmp_path_factory):
    folder = tmp_path_factory.mktemp("work")
    values = np.random.default_rng(1).standard_normal(1 << 18).astype(np.float32)
    later = values * np.float32(1.0001)
    (folder / "base").write_bytes(lmc.compress(values))
    (folder / "delta").write_bytes(lmc.compress(later, base=folder / "base"))
    return folder / "delta", folder / "base", later.tobytes()


class TestWork:
    """The bytes that one call may decode."""

    def test_a_small_limit(self, delta, tmp_path):
        path, base, raw = delta
        out = bytearray(len(raw))

        def read(**options):
            with lmc.open(path, base=base, **options) as f:
                return f.read_range(0, f.size)

        def by_stream(**options):
            lmc.decompress_stream(path, to := io.BytesIO(), base=base, **options)
            return to.getvalue()

        def by_file(**options):
            lmc.decompress_file(path, tmp_path / "out", base=base, **options)
            return (tmp_path / "out").read_bytes()

        for restore in (
            lambda **o: lmc.decompress(path.read_bytes(), base=base, **o),
            lambda **o: lmc.Decompressor(**o).decompress(path.read_bytes(), base=base),
            lambda **o: (lmc.decompress_into(path.read_bytes(), out, base=base, **o), bytes(out))[1],
            read,
            by_stream,
            by_file,
        ):
            with pytest.raises(lmc.LimitError, match="max_work is 1000000 bytes"):
                restore(max_work=1_000_000)
            assert not list(tmp_path.iterdir())
            assert restore(max_work=10 * len(raw)) == raw == restore(max_work=None)
            (tmp_path / "out").unlink(missing_ok=True)

    def test_is_of_each_call(self, delta):
        path, base, raw = delta
        with lmc.open(path, base=base, max_work=3 * len(raw)) as f:
            for _ in range(5):
                assert f.read_range(0, f.size) == raw
