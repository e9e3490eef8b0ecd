"""The tree of exceptions."""

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
