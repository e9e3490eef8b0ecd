"""Where checkpoints and their data files are: directories, and what fsspec knows."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast

from torch.distributed.checkpoint.filesystem import FileSystem, FileSystemBase
from torch.distributed.checkpoint.fsspec_filesystem import _FileSystem
from torch.distributed.checkpoint.metadata import Metadata

import lmc
from lmc.dcp import _unpickle
from lmc.dcp._unpickle import Trust

#: The folder beside the checkpoints that has the data files where there are no hard links.
POOL = "lmc-data"
SUFFIX = ".lmc"
METADATA = ".metadata"
#: What stands in a checkpoint of a bucket under the name of a data file, whose place is elsewhere: PyTorch's reader
#: then finds the file, and says that it does not know what is in it.
NOTE = b"What this file stands for is in the folder lmc-data beside this checkpoint. Read it with lmc.dcp.Reader, "
NOTE += b"or make the checkpoint plain with `lmc unpack`.\n"
#: Bytes that are read ahead of those that are wanted, where each request takes its time.
_READ_AHEAD = 8 << 20


class Storage:
    """A directory of checkpoints: a file is in several by hard links, and takes its space once.

    What PyTorch's `FileSystemBase` does is left to it.
    """

    #: Whether what was written may still have to be brought to stable storage.
    has_fsync = True

    def __init__(self, fs: FileSystemBase, trust: frozenset[str] | Literal[True]) -> None:
        self.fs = fs
        # What the metadata of its checkpoints may name beside what metadata consist of.
        self._trust = trust

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

    def has_data(self, path: str) -> bool:
        """Whether there is a data file, and no note in its place."""
        try:
            with open(path, "rb") as file:
                return file.read(len(NOTE)) != NOTE
        except FileNotFoundError:
            return False

    def read_metadata(self, checkpoint: str, name: str = METADATA) -> Metadata:
        """What `torch.distributed.checkpoint` wrote about a checkpoint.

        Nothing that it names is run but what is trusted.

        Raises `lmc.MissingFileError` if it is not there, `lmc.FormatError` if it is none, or names what is not trusted.
        """
        path = self.join(checkpoint, name)
        try:
            with self.fs.create_stream(path, "rb") as stream:
                return _unpickle.load(cast(BinaryIO, stream), path, self._trust)
        except FileNotFoundError as e:  # which may say nothing, as that of S3
            raise lmc.MissingFileError(f"{checkpoint} is no complete checkpoint: it has no {name}") from e


class Remote(_FileSystem):
    """PyTorch's way to what fsspec knows, also in a process forked from the one that made it.

    Nothing that was listed is remembered: other ranks write, too.
    """

    _fs: Any

    def __init__(self, url: str, options: dict[str, Any]) -> None:
        self._url = url
        self._options = {"use_listings_cache": False, **options}
        self._process = 0
        self._inherited: list[Any] = []
        super().__init__()
        self.init_path(url)

    def init_path(self, path: str | os.PathLike[str], **_: Any) -> str:
        self._url = os.fspath(path)
        self._process = 0
        assert self.fs is not None, "it is opened now, so that what is wrong with it is said now"
        return self._url

    # PyTorch has an attribute here.
    @property
    def fs(self) -> Any:
        # The threads that fsspec works with stay behind in a fork.
        if self._process != os.getpid():
            from fsspec.core import url_to_fs  # type: ignore[import-untyped]

            # To close the connections of the process that forked this one would end them there, too.
            self._inherited.append(self._fs)
            self._fs, _ = url_to_fs(self._url, **self._options)
            self._process = os.getpid()
        return self._fs

    @fs.setter
    def fs(self, _: None) -> None:
        self._fs = None


class Fsspec(Storage):
    """What fsspec knows: buckets, mostly. There are no links: the data files of all checkpoints are in one folder."""

    def __init__(self, fs: Remote, trust: frozenset[str] | Literal[True]) -> None:
        super().__init__(fs, trust)
        self._remote = fs
        # Of local files, which are written as slowly as any.
        self.has_fsync = "file" in _protocols(fs.fs)

    @property
    def _fs(self) -> Any:
        return self._remote.fs

    def parent(self, path: str) -> str:
        return path.rstrip("/").rpartition("/")[0]

    def open(self, path: str, base: Sequence[lmc.File | lmc.Base], threads: int | None = 1) -> lmc.File:
        file = self._fs.open(path, "rb", block_size=_READ_AHEAD)
        return lmc.open(cast(BinaryIO, file), base=list(base) or None, threads=threads)

    def write(self, path: str, data: bytes) -> None:
        """Writes a file; an object of a bucket is there once it is complete."""
        if self.has_fsync:
            with self.fs.create_stream(path, "wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
        else:
            self._fs.pipe_file(path, data)

    def read(self, path: str) -> bytes:
        return bytes(self._fs.cat_file(path))

    def has_data(self, path: str) -> bool:
        try:
            return bool(self._fs.cat_file(path, start=0, end=len(NOTE)) != NOTE)
        except FileNotFoundError:
            return False

    def names(self, folder: str) -> list[str]:
        return [name for name, kind in self._list(folder) if kind == "file"]

    def _list(self, folder: str) -> list[tuple[str, str]]:
        """Names in a folder, and what they are of."""
        self._fs.invalidate_cache()  # of those that heed no option
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


def _protocols(fs: Any) -> tuple[str, ...]:
    return (fs.protocol,) if isinstance(fs.protocol, str) else tuple(fs.protocol)


def _seconds(when: Any) -> float:
    """A time that fsspec says."""
    return float(when.timestamp() if hasattr(when, "timestamp") else when)


def storage_of(
    path: str | os.PathLike[str], options: dict[str, Any], trust: Trust
) -> tuple[FileSystem, Storage, Any]:
    """What reads and writes a path: PyTorch's file system and ours, and the path as they take it."""
    names = _unpickle.trusted(trust)
    if "://" in os.fspath(path):
        remote = Remote(os.fspath(path), options)
        # PyTorch's classes say that they take a directory's, and take any.
        return cast(FileSystem, remote), Fsspec(remote, names), os.fspath(path)
    local = FileSystem()
    return local, Storage(local, names), local.init_path(path)
