"""Where checkpoints and their data files are: directories, and what fsspec knows."""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

from torch.distributed.checkpoint.filesystem import FileSystem, FileSystemBase
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorStorageMetadata,
)

import lmc

#: The folder beside the checkpoints that has the data files where there are no hard links.
POOL = "lmc-data"
#: How the metadata of a checkpoint say that data are in a `.lmc` file. PyTorch's own reader knows no such extension
#: and says so.
DESCRIPTOR = "lmc.tensor"
SUFFIX = ".lmc"
METADATA = ".metadata"


class Storage:
    """A directory of checkpoints. What PyTorch's `FileSystemBase` does is left to it."""

    #: Whether a file can be in several checkpoints without taking its space twice.
    has_links = True

    def __init__(self, fs: FileSystemBase) -> None:
        self.fs = fs

    def join(self, folder: str, name: str) -> str:
        return os.fspath(self.fs.concat_path(folder, name))

    def parent(self, path: str) -> str:
        return str(Path(path).absolute().parent)

    def open(self, path: str, base: Sequence[lmc.File | lmc.Base], threads: int | None = 1) -> lmc.File:
        """Opens a `.lmc` file, a delta with its bases."""
        return lmc.open(path, base=list(base) or None, threads=threads)

    def names(self, folder: str) -> list[str]:
        """Names of the files in a folder; none if it is not there."""
        try:
            with os.scandir(folder) as entries:
                return [e.name for e in entries if e.is_file(follow_symlinks=False)]
        except FileNotFoundError:
            return []

    def folders(self, parent: str) -> list[str]:
        """The folders in a folder; none if it is not there."""
        try:
            with os.scandir(parent) as entries:
                return [e.path for e in entries if e.is_dir()]
        except FileNotFoundError:
            return []

    def checkpoints(self, parent: str) -> list[tuple[float, str]]:
        """The complete checkpoints in a folder, and when they were completed."""
        found = []
        for folder in self.folders(parent):
            try:
                found.append((self.written(self.join(folder, METADATA)), folder))
            except lmc.UnsupportedError:  # none is known to be newer than others
                found.append((0.0, folder))
            except OSError:
                continue
        return found

    def written(self, path: str) -> float:
        """When a file was written, in seconds since 1970."""
        return os.stat(path).st_mtime

    def now(self, folder: str) -> float:
        """The time by the clock that `written` is by."""
        return time.time()

    def link(self, source: str, target: str) -> None:
        """Gives a file a second name, unless that is its name already.

        Raises `OSError` where that cannot be done without a copy.
        """
        try:
            os.link(source, target)
        except FileExistsError:
            if not os.path.samefile(source, target):
                raise

    def remove(self, path: str) -> None:
        self.fs.rm_file(path)

    def read_metadata(self, checkpoint: str, name: str = METADATA) -> Metadata:
        """What `torch.distributed.checkpoint` wrote about a checkpoint.

        It is a pickle, which is as far to be trusted as the run itself.

        Raises `lmc.FormatError` if it is none.
        """
        path = self.join(checkpoint, name)
        with self.fs.create_stream(path, "rb") as stream:
            try:
                found = pickle.load(stream)
            except (OSError, MemoryError):
                raise
            except Exception as e:  # that of a damaged pickle may be any
                raise lmc.FormatError(f"{path} cannot be read: {type(e).__name__}: {e}") from e
        if not isinstance(found, Metadata):
            raise lmc.FormatError(f"{path} is not what torch.distributed.checkpoint writes")
        return found


class Fsspec(Storage):
    """What fsspec knows: buckets, mostly."""

    has_links = False

    def __init__(self, fs: FileSystemBase) -> None:
        super().__init__(fs)
        self._fs: Any = getattr(fs, "fs")  # noqa: B009, PyTorch's class is private

    def parent(self, path: str) -> str:
        return path.rstrip("/").rpartition("/")[0]

    def open(self, path: str, base: Sequence[lmc.File | lmc.Base], threads: int | None = 1) -> lmc.File:
        return lmc.open(cast(BinaryIO, self._fs.open(path, "rb")), base=list(base) or None, threads=threads)

    def names(self, folder: str) -> list[str]:
        return [name for name, kind in self._list(folder) if kind == "file"]

    def _list(self, folder: str) -> list[tuple[str, str]]:
        """Names in a folder, and what they are of."""
        self._fs.invalidate_cache()
        try:
            entries = self._fs.ls(folder, detail=True)
        except FileNotFoundError:
            return []
        return [(e["name"].rstrip("/").rpartition("/")[2], e["type"]) for e in entries]

    def folders(self, parent: str) -> list[str]:
        return [self.join(parent, name) for name, kind in self._list(parent) if kind == "directory"]

    def written(self, path: str) -> float:
        info = self._fs.info(path)
        for key in ("LastModified", "mtime", "last_modified", "updated", "created"):
            if info.get(key) is not None:
                return _seconds(info[key])
        try:
            return _seconds(self._fs.modified(path))
        except (NotImplementedError, AttributeError, TypeError, ValueError) as e:
            raise lmc.UnsupportedError(f"{path}: the storage does not say when it was written") from e

    def now(self, folder: str) -> float:
        # The clock of this machine may be another than the server's.
        probe = self.join(folder, f"probe-{os.getpid()}-{time.time_ns()}")
        self._fs.pipe_file(probe, b"x")
        try:
            self._fs.invalidate_cache()
            return self.written(probe)
        finally:
            self.remove(probe)

    def link(self, source: str, target: str) -> None:
        raise OSError("there are no hard links")


def _seconds(when: Any) -> float:
    """A time that fsspec says."""
    return float(when.timestamp() if hasattr(when, "timestamp") else when)


def storage_of(path: str | os.PathLike[str], options: dict[str, Any]) -> tuple[FileSystem, Storage, Any]:
    """What reads and writes a path: PyTorch's file system and ours, and the path as they take it."""
    if "://" in os.fspath(path):
        from torch.distributed.checkpoint.fsspec_filesystem import _FileSystem

        remote = _FileSystem()
        where = remote.init_path(os.fspath(path), **options)
        # PyTorch's classes say that they take a directory's, and take any.
        return cast(FileSystem, remote), Fsspec(remote), where
    local = FileSystem()
    return local, Storage(local), local.init_path(path)


class Files:
    """Data files of a checkpoint, opened with all that they are made from.

    A process can have only so many open: whoever goes through a checkpoint has one of these for each of its files.
    """

    def __init__(self, storage: Storage, checkpoint: str) -> None:
        self.storage = storage
        self.checkpoint = checkpoint
        self._folders = [checkpoint]
        if not storage.has_links:
            self._folders.append(storage.join(storage.parent(checkpoint), POOL))
        self._open: dict[str, _Opened] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Files:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def path(self, name: str) -> str:
        """Where a file is.

        Raises `lmc.MissingFileError` if it is not there.
        """
        for folder in self._folders:
            path = self.storage.join(folder, name)
            if self.storage.fs.exists(path):
                return path
        raise lmc.MissingFileError(
            f"{self.checkpoint}: the data file {name} is not there; it may have been deleted by hand"
        )

    def open(self, name: str) -> lmc.File:
        """Opens a file, and what it is made from, to list it and to make others from it."""
        return self._opened(name, ()).file

    def reading(self, name: str) -> lmc.File:
        """Opens a file once more, to read much of it; it has threads for that."""
        return self._stack.enter_context(self.storage.open(self.path(name), self._opened(name, ()).bases, None))

    def closure(self, name: str) -> list[str]:
        """The file and all that it is made from, directly or not."""
        return self._opened(name, ()).closure

    def depth(self, name: str) -> int:
        """How many files have to be read one from the other, beside this one."""
        return self._opened(name, ()).depth

    def _opened(self, name: str, within: tuple[str, ...]) -> _Opened:
        if name in self._open:
            return self._open[name]
        if name in within:
            raise lmc.FormatError(f"{self.checkpoint}: the data file {name} is made from itself")
        path = self.path(name)
        # Bases are named in the index, which can be read without them.
        with self.storage.open(path, []) as alone:
            names = [base.name for base in alone.bases]
        if not all(is_data_file(base) for base in names):
            raise lmc.FormatError(f"{path}: its bases are no data files of a checkpoint: {names}")
        bases = [self._opened(base, (*within, name)) for base in names]
        own = [base.file for base in bases]
        self._open[name] = opened = _Opened(
            self._stack.enter_context(self.storage.open(path, own)),
            own,
            list(dict.fromkeys([name, *(n for base in bases for n in base.closure)])),
            max((1 + base.depth for base in bases), default=0),
        )
        return opened


@dataclass(frozen=True)
class _Opened:
    file: lmc.File
    bases: list[lmc.File]
    closure: list[str]
    depth: int


def is_data_file(name: str) -> bool:
    """Whether a name can be that of a data file, and is no path."""
    return name.endswith(SUFFIX) and "/" not in name and os.sep not in name and "\0" not in name


def data_files(metadata: Metadata) -> set[str]:
    """The data files that a checkpoint names, without what those are made from."""
    places = (metadata.storage_data or {}).values()
    return {p.relative_path for p in places if tensor_name(p) is not None}


def needed_files(storage: Storage, checkpoint: str, metadata: Metadata) -> set[str]:
    """The data files that a checkpoint needs, those that others are made from included."""
    needed: set[str] = set()
    for name in data_files(metadata):
        with Files(storage, checkpoint) as files:
            needed.update(files.closure(name))
    return needed


def chunk_at(tensor: TensorStorageMetadata, index: MetadataIndex) -> ChunkStorageMetadata:
    """The chunk of a tensor that an index is of.

    Raises `lmc.FormatError` if there is none.
    """
    hint = index.index
    if hint is not None and hint < len(tensor.chunks) and tensor.chunks[hint].offsets == index.offset:
        return tensor.chunks[hint]
    for chunk in tensor.chunks:
        if chunk.offsets == index.offset:
            return chunk
    raise lmc.FormatError(f"{index.fqn}: the checkpoint has no chunk of it at {index.offset}")


def tensor_name(place: Any) -> str | None:
    """The name in its data file of what is at a place of a checkpoint; `None` if lmc did not write it."""
    for descriptor in getattr(place, "transform_descriptors", None) or ():
        extension, _, name = descriptor.partition("/")
        if extension == DESCRIPTOR:
            return str(name)
    return None


@dataclass(frozen=True)
class Garbage:
    """What `collect_garbage` found."""

    #: Data files that no checkpoint needs.
    files: list[str]
    #: The same, but written within the grace period, or what those are made from: they may belong to a checkpoint
    #: that is being saved.
    young: list[str]


def collect_garbage(
    parent: str | os.PathLike[str], *, grace_seconds: float = 86_400, dry_run: bool = False, **options: Any
) -> Garbage:
    """Deletes data files of buckets that no checkpoint needs any more.

    It is only needed where there are no hard links; elsewhere a checkpoint that is deleted takes its files along.

    Args:
        parent: the folder with the checkpoints, of which any may have been deleted. fsspec is given `options`.
        grace_seconds: files that were written later than so long ago, by the clock of the storage, stay: a save
            may be under way. It must be more than a save takes.
        dry_run: deletes nothing.

    Raises:
        lmc.Error: a checkpoint names a data file that is not there or cannot be read. Nothing has been deleted then.
    """
    _, storage, root = storage_of(parent, options)
    pool = storage.join(os.fspath(root), POOL)
    # Files first: what a save that ends meanwhile refers to is either young or in a checkpoint that is listed
    # afterwards.
    names = [n for n in storage.names(pool) if is_data_file(n)]
    if not names:
        return Garbage([], [])
    now = storage.now(pool)
    needed: set[str] = set()
    for checkpoint in storage.folders(os.fspath(root)):
        # Ranks that save without collectives have metadata of their own.
        for metadata in [n for n in storage.names(checkpoint) if n.endswith(METADATA)]:
            needed |= needed_files(storage, checkpoint, storage.read_metadata(checkpoint, metadata))
    left = [name for name in names if name not in needed]
    recent = [n for n in left if storage.written(storage.join(pool, n)) + grace_seconds >= now]
    saving = set(recent)
    for name in recent:
        try:
            with Files(storage, pool) as files:
                saving.update(files.closure(name))
        except lmc.Error:  # of a save that failed, or has not come so far
            continue
    old = [name for name in left if name not in saving]
    young = [name for name in left if name in saving]
    if not dry_run:
        for name in old:
            storage.remove(storage.join(pool, name))
    return Garbage(old, young)
