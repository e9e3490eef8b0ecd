"""The tree of exceptions."""

import io
import pickle

import lmc
import pytest

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
    found = {n for n in lmc.__all__ if isinstance(getattr(lmc, n), type) and issubclass(getattr(lmc, n), Exception)}
    assert found == KINDS.keys() | {"Error"}


@pytest.mark.parametrize("name", KINDS)
def test_kinds(name):
    kind, base = KINDS[name]
    exception = getattr(lmc, name)
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
    with pytest.raises(lmc.MissingFileError) as e:
        lmc.open("missing")
    copy = pickle.loads(pickle.dumps(e.value))
    assert (type(copy), copy.errno, copy.filename) == (lmc.MissingFileError, 2, "missing")


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
