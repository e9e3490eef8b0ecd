"""Bases of deltas that were not given: found beside their delta, by the hash of their contents."""

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from lmc._errors import Error
from lmc._lmc import BaseInfo, File


@dataclass(frozen=True)
class _Candidate:
    path: str
    size: int
    #: Of an uncompressed file, once it is needed: the whole file is read for it.
    content_hash: str | None
    bases: list[BaseInfo]


def open_file(source: Any, *, base: Any, threads: int | None) -> File:
    """Opens a file, compressed or not. Unless bases are given, those of a delta are looked for in its directory, and in
    that of the file that it is a link to."""
    file = File(source, base=base, threads=threads, plain=True)
    if base is not None or file.name is None or not file.bases:
        return file
    try:
        found = _find(file.name, file.bases)
    except BaseException:
        file.close()
        raise
    if not found:
        return file  # reading says which base is missing
    file.close()
    return File(source, base=found, threads=threads, plain=True)


def _find(delta: os.PathLike[str], wanted: Iterable[BaseInfo]) -> list[str]:
    """The files that a delta needs, with those that these need; none if one of them is not there."""
    candidates = _candidates(delta)
    found, left, looked_for = list[str](), list(wanted), set[tuple[int, str]]()
    while left:
        base = left.pop()
        if (base.size, base.content_hash) in looked_for:
            continue
        looked_for.add((base.size, base.content_hash))
        match = next((c for c in _in_order(candidates, base) if _hash_of(c) == base.content_hash), None)
        if match is None:
            return []
        found.append(match.path)
        left += match.bases
    return found


def _candidates(delta: os.PathLike[str]) -> list[_Candidate]:
    """The files beside a delta that can be read."""
    found = list[_Candidate]()
    folders = dict.fromkeys(os.path.dirname(path) for path in (os.path.abspath(delta), os.path.realpath(delta)))
    paths = list[str]()
    for folder in folders:
        with suppress(OSError):
            paths += [os.path.join(folder, name) for name in sorted(os.listdir(folder))]
    for path in paths:
        with suppress(OSError, Error):
            if not os.path.isfile(path) or os.path.samefile(path, delta):
                continue
            with File(path, plain=True, threads=1) as file:
                content_hash = file.content_hash if file.compressed else None
                found.append(_Candidate(path, file.size, content_hash, file.bases))
    return found


def _in_order(candidates: list[_Candidate], base: BaseInfo) -> list[_Candidate]:
    """Those of the right size: first what need not be read to be known, and no deltas; then by name."""
    names = (base.name, f"{base.name}.lmc")
    fitting = [c for c in candidates if c.size == base.size]
    return sorted(fitting, key=lambda c: (c.content_hash is None, bool(c.bases), os.path.basename(c.path) not in names))


def _hash_of(candidate: _Candidate) -> str | None:
    if candidate.content_hash is not None:
        return candidate.content_hash
    with suppress(Error), File(candidate.path, plain=True) as file:
        return file.content_hash
    return None
