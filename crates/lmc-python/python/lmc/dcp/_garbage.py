"""Data files in buckets that no checkpoint needs any more."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass

import lmc
from lmc._lmc import is_url
from lmc.dcp import _notices
from lmc.dcp._files import with_bases
from lmc.dcp._storage import METADATA, POOL, Fsspec, StorageOptions, is_data_file, no_options, storage_of


@dataclass(frozen=True)
class UnusedFiles:
    """The result of `collect_garbage`."""

    #: Data files that no checkpoint needs.
    files: list[str]
    #: Unreferenced files that stay: written within the grace period, or bases of such files or of saves in progress.
    #: They may belong to a checkpoint that is being saved.
    young: list[str]


def collect_garbage(
    parent: str | os.PathLike[str],
    *,
    grace_seconds: float = 86_400,
    dry_run: bool = False,
    storage_options: StorageOptions = None,
) -> UnusedFiles:
    """Deletes data files in buckets that no checkpoint needs any more.

    Only needed where there are no hard links; elsewhere deleting a checkpoint deletes its files. Safe while checkpoints
    are being saved.

    Args:
        parent: the folder with the checkpoints; any checkpoint may have been deleted.
        grace_seconds: files written less than this long ago, by the clock of the storage, stay: a save may be in
            progress. It must exceed the duration of a save.
        dry_run: deletes nothing.
        storage_options: options of the file system of a URL, for fsspec.

    Raises:
        lmc.Error: a checkpoint names a data file that is missing or cannot be read, or its metadata cannot be
            read. In that case nothing was deleted.
    """
    where = os.fspath(parent)
    # Among directories, only checkpoints saved under a URL have such a folder.
    if not is_url(where):
        no_options(where, storage_options)
        where = f"file://{os.path.abspath(where)}"
    _, storage, run = storage_of(where, storage_options)
    assert isinstance(storage, Fsspec), "the path is a URL"
    pool = storage.join(run, POOL)
    if not any(is_data_file(n) for n in storage.names(pool)):
        return UnusedFiles([], [])
    since = storage.now(pool) - grace_seconds
    bases: dict[str, list[str]] = {}
    found = _unneeded(storage, run, since, bases)
    if dry_run:
        return found
    if found.files:
        with _notices.deleting(storage, pool, found.files):
            # A save that had not written its notice by then has written it by now, or sees ours.
            still = set(_unneeded(storage, run, since, bases).files)
            kept = [n for n in found.files if n not in still]
            found = UnusedFiles([n for n in found.files if n in still], sorted(found.young + kept))
            for name in found.files:
                storage.remove(storage.join(pool, name))
    _notices.remove_old(storage, pool, since)
    return found


def _unneeded(storage: Fsspec, run: str, since: float, bases: dict[str, list[str]]) -> UnusedFiles:
    """The data files that no checkpoint needs. `bases` caches those of files, which never change."""
    pool = storage.join(run, POOL)
    # The order matters: a concurrent save has a notice first, then a young file, and then a checkpoint.
    saving = _notices.needed_by_saves(storage, pool, since)
    names = [n for n in storage.names(pool) if is_data_file(n)]
    needed: set[str] = set()
    for checkpoint in storage.folders(run):
        # Ranks that save without collectives have metadata of their own.
        for name in [n for n in storage.names(checkpoint) if n.endswith(METADATA)]:
            try:
                chunks = storage.chunks_of(checkpoint, name)
            except FileNotFoundError:  # the checkpoint is being deleted
                continue
            needed |= with_bases(storage, checkpoint, chunks, bases)
    left = [name for name in names if name not in needed]
    for name in left:
        if storage.written(storage.join(pool, name)) >= since:
            saving.add(name)
            with suppress(lmc.Error):  # the file of a save that failed or is in progress
                saving |= with_bases(storage, pool, [name], bases)
    return UnusedFiles([n for n in left if n not in saving], [n for n in left if n in saving])
