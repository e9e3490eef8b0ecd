"""The data files of a checkpoint, and their contents."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    MetadataIndex,
    TensorStorageMetadata,
)

import lmc
from lmc._errors import MissingFileError
from lmc.dcp._storage import POOL, Fsspec, Storage, is_data_file

#: Marks data in a `.lmc` file in the metadata of a checkpoint. PyTorch's own reader does not know the extension and
#: says so.
DESCRIPTOR = "lmc.tensor"


class Files:
    """Data files of a checkpoint, opened with all of their bases.

    The number of open files of a process is limited: use one instance per data file to go through a checkpoint.
    """

    def __init__(self, storage: Storage, checkpoint: str) -> None:
        self.storage = storage
        self.checkpoint = checkpoint
        # A checkpoint copied from a directory to a bucket still has its own files, and the other way round.
        self._folders = [checkpoint, storage.join(storage.parent(checkpoint), POOL)]
        if isinstance(storage, Fsspec):
            self._folders.reverse()
        self._open: dict[str, _Opened] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Files:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def path(self, name: str) -> str:
        """The path of a data file.

        Raises `FileNotFoundError` if it does not exist.
        """
        for folder in self._folders:
            path = self.storage.join(folder, name)
            if self.storage.has_data(path):
                return path
        raise MissingFileError(
            f"{self.checkpoint}: the data file {name} is not there; it may have been deleted by hand"
        )

    def bases(self, name: str) -> list[str]:
        """The bases of a data file, which may be missing."""
        path = self.path(name)
        # The index names them, and can be read without them.
        with self.storage.open(path, []) as alone:
            names = [base.name for base in alone.bases]
        if not all(is_data_file(base) for base in names):
            raise lmc.FormatError(f"{path}: its bases are not data files of a checkpoint: {names}")
        return names

    def open(self, name: str) -> lmc.File:
        """Opens a file with its bases, to list it and to use it as a base."""
        return self._opened(name).file

    def reading(self, name: str, threads: int | None = None) -> lmc.File:
        """Opens a file once more, with `threads` threads, to read much of it."""
        return self._stack.enter_context(self.storage.open(self.path(name), self._opened(name).bases, threads))

    def closure(self, name: str) -> list[str]:
        """The file and all of its bases, direct and indirect."""
        return self._opened(name).closure

    def depth(self, name: str) -> int:
        """The length of its chain: how many files are decoded before this one."""
        return self._opened(name).depth

    def _opened(self, name: str) -> _Opened:
        # Bases before the files that need them, without recursion: chains may be long. `within`: the files on the way
        # to the one that is next, and their bases.
        within: dict[str, list[str]] = {}
        left = [name]
        while left:
            file = left[-1]
            if file not in self._open and file not in within:
                within[file] = self.bases(file)
                for base in within[file]:
                    if base in within:
                        raise lmc.FormatError(f"{self.checkpoint}: the data file {base} is its own base")
                left += [base for base in within[file] if base not in self._open]
                continue
            left.pop()
            if file in within:
                self._open[file] = self._open_with(file, [self._open[base] for base in within.pop(file)])
        return self._open[name]

    def _open_with(self, name: str, bases: list[_Opened]) -> _Opened:
        own = [base.file for base in bases]
        return _Opened(
            self._stack.enter_context(self.storage.open(self.path(name), own)),
            own,
            list(dict.fromkeys([name, *(n for base in bases for n in base.closure)])),
            max((1 + base.depth for base in bases), default=0),
        )


@dataclass(frozen=True)
class _Opened:
    file: lmc.File
    bases: list[lmc.File]
    closure: list[str]
    depth: int


def chunk_key(index: MetadataIndex) -> str:
    """The key of a chunk among those of a checkpoint: the name of its tensor, and its first indices.

    A text, as its hash is known to nobody.
    """
    return f"{index.fqn}@{','.join(map(str, index.offset or ()))}"


def with_bases(storage: Storage, checkpoint: str, names: Iterable[str], known: dict[str, list[str]]) -> set[str]:
    """Data files, and all of their bases.

    `known` caches the bases of files, so that each file is opened once.

    Raises `lmc.Error` if one of them is missing or cannot be read.
    """
    left, found = list(names), set[str]()
    with Files(storage, checkpoint) as files:
        while left:
            name = left.pop()
            if name not in found:
                found.add(name)
                if name not in known:
                    known[name] = files.bases(name)
                left += known[name]
    return found


def chunk_at(tensor: TensorStorageMetadata, index: MetadataIndex) -> ChunkStorageMetadata:
    """The saved chunk that an index refers to.

    Raises `lmc.FormatError` if there is none.
    """
    hint = index.index
    if hint is not None and hint < len(tensor.chunks) and tensor.chunks[hint].offsets == index.offset:
        return tensor.chunks[hint]
    for chunk in tensor.chunks:
        if chunk.offsets == index.offset:
            return chunk
    raise lmc.FormatError(f"{index.fqn}: the checkpoint has no chunk at offset {index.offset}")


def tensor_name(place: Any) -> str | None:
    """The tensor name in the data file for a storage location; `None` if lmc did not write it."""
    for descriptor in getattr(place, "transform_descriptors", None) or ():
        extension, _, name = descriptor.partition("/")
        if extension == DESCRIPTOR:
            return str(name)
    return None
