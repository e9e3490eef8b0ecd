"""Notices that saves and garbage collections in a bucket exchange.

A save first writes which data files it needs, and then checks whether any of them is being deleted. A collection first
writes which files it is about to delete, and then checks whether a save needs any of them. So at least one of them sees
the other, in any interleaving, provided that the storage is consistent (a write is visible to all later reads), as S3
is.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import lmc
from lmc._errors import MissingFileError
from lmc.dcp._storage import Fsspec

_SAVING = "saving"
_DELETING = "deleting"


@contextmanager
def saving(storage: Fsspec, pool: str, needed: Sequence[str]) -> Iterator[None]:
    """Protects data files until a checkpoint that uses them is complete.

    Raises `FileNotFoundError` if one of them is being deleted.
    """
    with _notice(storage, storage.join(pool, _SAVING), needed):
        deleted = {n for names in _read(storage, storage.join(pool, _DELETING), None) for n in names}
        for name in needed:
            if name in deleted:
                raise MissingFileError(f"the data file {name} in {pool} is being deleted: no checkpoint needed it")
        yield


@contextmanager
def deleting(storage: Fsspec, pool: str, names: Sequence[str]) -> Iterator[None]:
    """Announces that data files are about to be deleted."""
    with _notice(storage, storage.join(pool, _DELETING), names):
        yield


def needed_by_saves(storage: Fsspec, pool: str, since: float) -> set[str]:
    """The data files announced as needed by saves that began at that time or later."""
    return {n for names in _read(storage, storage.join(pool, _SAVING), since) for n in names}


def remove_old(storage: Fsspec, pool: str, since: float) -> None:
    """Removes older notices, of processes that died."""
    for folder in (storage.join(pool, _SAVING), storage.join(pool, _DELETING)):
        for name in storage.names(folder):
            path = storage.join(folder, name)
            with suppress(FileNotFoundError):  # another collection removes them, too
                if storage.written(path) < since:
                    storage.remove(path)


@contextmanager
def _notice(storage: Fsspec, folder: str, names: Sequence[str]) -> Iterator[None]:
    storage.fs.mkdir(folder)
    path = storage.join(folder, f"{os.urandom(8).hex()}.json")
    storage.write(path, json.dumps(list(names)).encode())
    try:
        yield
    finally:
        with suppress(FileNotFoundError):
            storage.remove(path)


def _read(storage: Fsspec, folder: str, since: float | None) -> Iterator[list[str]]:
    for name in storage.names(folder):
        path = storage.join(folder, name)
        try:
            if since is not None and storage.written(path) < since:
                continue
            names = json.loads(storage.read(path))
        except FileNotFoundError:  # it has just ended
            continue
        except (ValueError, RecursionError) as e:
            raise lmc.FormatError(f"{path} is not a list of data files: {e}; delete it if nothing saves there") from e
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise lmc.FormatError(f"{path} is not a list of data files; delete it if nothing saves there")
        yield names
