"""Data files and their bases."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace

import lmc
import pytest
from lmc.dcp._files import Files


class Stored:
    """A storage whose data files have these bases."""

    def __init__(self, bases: dict[str, list[str]]) -> None:
        self.bases = bases

    def join(self, folder: str, name: str) -> str:
        return f"{folder}/{name}"

    def parent(self, path: str) -> str:
        return "parent"

    def has_data(self, path: str) -> bool:
        return path.startswith("checkpoint/")

    @contextmanager
    def open(self, path: str, base: list[object], threads: int | None = 1):
        names = self.bases[path.rpartition("/")[2]]
        assert len(base) in (0, len(names))
        yield SimpleNamespace(path=path, bases=[SimpleNamespace(name=name) for name in names])


def test_a_long_chain():
    length = 2000
    chain = {"0.lmc": []} | {f"{i}.lmc": [f"{i - 1}.lmc"] for i in range(1, length)}
    with Files(Stored(chain), "checkpoint") as files:
        assert files.depth(f"{length - 1}.lmc") == length - 1
        assert files.closure(f"{length - 1}.lmc") == [f"{i}.lmc" for i in reversed(range(length))]
        assert files.depth("5.lmc") == 5


def test_several_bases():
    bases = {"a.lmc": ["b.lmc", "c.lmc"], "b.lmc": ["d.lmc"], "c.lmc": ["b.lmc", "d.lmc"], "d.lmc": []}
    with Files(Stored(bases), "checkpoint") as files:
        assert files.closure("a.lmc") == ["a.lmc", "b.lmc", "d.lmc", "c.lmc"]
        assert (files.depth("a.lmc"), files.depth("c.lmc")) == (3, 2)
        assert files.open("a.lmc").path == "checkpoint/a.lmc"


@pytest.mark.parametrize(
    "bases", [{"a.lmc": ["a.lmc"]}, {"b.lmc": ["a.lmc"], "a.lmc": ["c.lmc"], "c.lmc": ["b.lmc", "a.lmc"]}]
)
def test_a_file_that_is_its_own_base(bases):
    with Files(Stored(bases), "checkpoint") as files, pytest.raises(lmc.FormatError, match=r"[ab].lmc is its own base"):
        files.open("a.lmc")
