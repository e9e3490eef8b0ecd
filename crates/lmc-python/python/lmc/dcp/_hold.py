"""Keeping the base of a new checkpoint until the new one is written."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import ExitStack

from lmc._errors import MissingFileError
from lmc.dcp import _notices
from lmc.dcp._files import Files
from lmc.dcp._storage import Fsspec, Storage


class Hold:
    """In a directory: hard links of this rank's own.

    Other ranks may need the same files or not.
    """

    def __init__(self, storage: Storage, files: Files, checkpoint: str) -> None:
        self._storage = storage
        self._files = files
        self._checkpoint = checkpoint
        self._held: dict[str, str] = {}

    def __enter__(self) -> Hold:
        return self

    def __exit__(self, *_: object) -> None:
        for path in self._held.values():
            self._storage.remove(path)

    def take(self, names: Iterable[str]) -> None:
        """Links data files. Raises `lmc.Error` or `OSError` where that is impossible."""
        own = os.urandom(8).hex()
        for name in names:
            path = self._storage.join(self._checkpoint, f"held-{own}-{name}")
            self._storage.link(self._files.path(name), path)
            self._held[name] = path

    def keep(self, names: Iterable[str]) -> None:
        """Moves those that turned out to be needed into the new checkpoint.

        Raises `FileNotFoundError` if one of them is gone.
        """
        for name in names:
            self._storage.link(self._held[name], self._storage.join(self._checkpoint, name))


class HoldInBucket(Hold):
    """In a bucket: a notice, so that they are not deleted as garbage."""

    def __init__(self, storage: Fsspec, files: Files, checkpoint: str, pool: str) -> None:
        super().__init__(storage, files, checkpoint)
        self._bucket = storage
        self._pool = pool
        self._stack = ExitStack()

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def take(self, names: Iterable[str]) -> None:
        needed = sorted(names)
        self._stack.enter_context(_notices.saving(self._bucket, self._pool, needed))
        # Notices do not protect a checkpoint copied from a directory: its files may be gone.
        self.keep(needed)

    def keep(self, names: Iterable[str]) -> None:
        for name in names:
            if not self._storage.fs.exists(self._storage.join(self._pool, name)):
                raise MissingFileError(f"the data file {name} is not in {self._pool}")
