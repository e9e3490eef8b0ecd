"""Storage of checkpoints and their data files: directories, and file systems of fsspec."""

from __future__ import annotations

import errno
import os
import secrets
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeAlias, TypeVar, cast

from torch.distributed.checkpoint.filesystem import FileSystem, FileSystemBase
from torch.distributed.checkpoint.metadata import Metadata

import lmc
from lmc._errors import MissingFileError
from lmc._lmc import chunks_by_file, is_url
from lmc.dcp import _unpickle
from lmc.dcp._unpickle import Trust

try:
    from torch.distributed.checkpoint.fsspec_filesystem import _FileSystem
except ModuleNotFoundError:  # Before torch 2.15 the module was private.
    from torch.distributed.checkpoint._fsspec_filesystem import FileSystem as _FileSystem

T = TypeVar("T")

StorageOptions: TypeAlias = Mapping[str, Any] | None
"""Options of a file system of fsspec, such as `{"endpoint_url": …}`."""

#: Protocols of fsspec under which a file appears when it is complete.
_OBJECT_STORES = frozenset({"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "oss", "oci", "memory"})
#: The folder with the data files, beside the checkpoints, where there are no hard links.
POOL = "lmc-data"
SUFFIX = ".lmc"
METADATA = ".metadata"
#: The contents of a placeholder for a data file in a checkpoint of a bucket, whose data are elsewhere: PyTorch's reader
#: then finds the file, and reports that it does not know the format.
NOTE = b"What this file stands for is in the folder lmc-data beside this checkpoint. Read it with lmc.dcp.Reader, "
NOTE += b"or make the checkpoint plain with `lmc unpack`.\n"
#: Bytes to read ahead where each request has a high latency.
_READ_AHEAD = 8 << 20


class Storage:
    """A directory of checkpoints. A file may be in several by hard links, and takes its space once.

    Extends PyTorch's `FileSystemBase`.
    """

    #: Whether written files may still have to be synced to stable storage.
    has_fsync = True

    def __init__(self, fs: FileSystemBase, trust: frozenset[str] | Literal[True]) -> None:
        self.fs = fs
        # Names that the metadata of its checkpoints may contain beside those of PyTorch's.
        self._trust = trust

    def join(self, folder: str, name: str) -> str:
        return os.fspath(self.fs.concat_path(folder, name))

    def parent(self, path: str) -> str:
        return str(Path(path).absolute().parent)

    def open(self, path: str, base: Sequence[lmc.File | lmc.Base], threads: int | None = 1) -> lmc.File:
        """Opens a `.lmc` file, a delta with its bases."""
        return lmc.open(path, base=list(base) or None, threads=threads)

    def names(self, folder: str) -> list[str]:
        """Names of the files in a folder; none if it is missing."""
        try:
            with os.scandir(folder) as entries:
                return [e.name for e in entries if e.is_file(follow_symlinks=False)]
        except FileNotFoundError:
            return []

    def folders(self, parent: str) -> list[str]:
        """The folders in a folder; none if it is missing."""
        try:
            with os.scandir(parent) as entries:
                return [e.path for e in entries if e.is_dir()]
        except FileNotFoundError:
            return []

    def checkpoints(self, parent: str) -> list[tuple[float, str]]:
        """The complete checkpoints in a folder, with the times of their completion."""
        found = []
        for folder in self.folders(parent):
            try:
                found.append((self.written(self.join(folder, METADATA)), folder))
            except lmc.UnsupportedError:  # no times: none counts as newer
                found.append((0.0, folder))
            except OSError:
                continue
        return found

    def written(self, path: str) -> float:
        """When a file was written, in seconds since 1970."""
        return os.stat(path).st_mtime

    def now(self, folder: str) -> float:
        """The current time, by the clock of `written`."""
        return time.time()

    def link(self, source: str, target: str) -> None:
        """Gives a file a second name, unless it has that name already.

        Raises `OSError` where that would take a copy.
        """
        try:
            os.link(source, target)
        except FileExistsError:
            if not os.path.samefile(source, target):
                raise

    def remove(self, path: str) -> None:
        self.fs.rm_file(path)

    def replace(self, path: str, data: bytes, *, sync: bool) -> None:
        """Writes a file, or replaces it: at every moment there is the old one or the new one, if there was one.

        Where `sync` is set it is on stable storage then.
        """
        partial = _partial(path)
        try:
            with open(partial, "xb") as out:
                out.write(data)
            if sync:
                settle(partial, path)
            else:
                os.replace(partial, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(partial)
            raise

    def check_regular(self, path: str) -> None:
        """Fails if something else than a file is there: opening a FIFO would wait for ever, reading a device never end.

        Raises `lmc.IOError`.
        """
        with suppress(FileNotFoundError):  # whoever opens it says so
            if not stat.S_ISREG(os.stat(path).st_mode):
                raise lmc.IOError(f"{path}: cannot read: it is not a regular file")

    def has_data(self, path: str) -> bool:
        """Whether a data file exists, and is not a placeholder."""
        self.check_regular(path)
        try:
            with open(path, "rb") as file:
                return file.read(len(NOTE)) != NOTE
        except FileNotFoundError:
            return False

    def read_metadata(self, checkpoint: str, name: str = METADATA) -> Metadata:
        """The metadata of a checkpoint, as `torch.distributed.checkpoint` wrote it.

        Nothing that it names is executed unless it is trusted.

        Raises `FileNotFoundError` if it is missing, `lmc.FormatError` if it is invalid, or contains an untrusted
        name; `lmc.IOError` if it is not a file.
        """
        return self._of_metadata(checkpoint, name, lambda path, s: _unpickle.load(s, path, self._trust))

    def chunks_of(self, checkpoint: str, name: str = METADATA) -> dict[str, list[str]]:
        """The data files of `lmc` that the metadata of a checkpoint name, and the chunks in each, as `_files.chunk_key`
        names them. Nothing is unpickled.

        Raises as `read_metadata`.
        """
        return self._of_metadata(checkpoint, name, _chunks)

    def _of_metadata(self, checkpoint: str, name: str, read: Callable[[str, BinaryIO], T]) -> T:
        path = self.join(checkpoint, name)
        self.check_regular(path)
        try:
            with self.fs.create_stream(path, "rb") as stream:
                return read(path, cast(BinaryIO, stream))
        except FileNotFoundError as e:  # its message may be empty, as that of S3
            raise MissingFileError(f"{checkpoint} is not a complete checkpoint: it has no {name}") from e


def _chunks(path: str, stream: BinaryIO) -> dict[str, list[str]]:
    try:
        found = chunks_by_file(stream.read(_unpickle.LARGEST + 1), _unpickle.LARGEST)
    except lmc.Error as e:
        raise type(e)(f"{path}: {e}") from e
    for name in found:
        if not is_data_file(name):
            raise lmc.FormatError(
                f"{path}: names {name!r:.200}, which is not a file of the checkpoint: it may be hostile"
            )
    return found


def is_data_file(name: str) -> bool:
    """Whether a name can be that of a data file, and is not a path."""
    return name.endswith(SUFFIX) and "/" not in name and os.sep not in name and "\0" not in name


class Remote(_FileSystem):
    """PyTorch's wrapper of fsspec, made safe in a process forked from the one that created it.

    Listings are not cached: other ranks write, too.
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
        assert self.fs is not None, "the file system was not opened"
        return self._url

    # An attribute in PyTorch's class.
    @property
    def fs(self) -> Any:
        # A fork leaves fsspec's threads behind.
        if self._process != os.getpid():
            from fsspec.core import url_to_fs  # type: ignore[import-untyped]

            # Closing connections inherited from the parent would close them there, too.
            self._inherited.append(self._fs)
            self._fs, _ = url_to_fs(self._url, **self._options)
            self._process = os.getpid()
        return self._fs

    @fs.setter
    def fs(self, _: None) -> None:
        self._fs = None


class Fsspec(Storage):
    """File systems of fsspec, mostly buckets. There are no links: the data files of all checkpoints are in one
    folder."""

    def __init__(self, fs: Remote, trust: frozenset[str] | Literal[True]) -> None:
        super().__init__(fs, trust)
        self._remote = fs
        # Only local files can be synced.
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
        """Writes a file; an object in a bucket appears once it is complete."""
        if self.has_fsync:
            with self.fs.create_stream(path, "wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
        else:
            self._fs.pipe_file(path, data)

    def replace(self, path: str, data: bytes, *, sync: bool) -> None:
        if self.has_fsync:
            super().replace(self._fs._strip_protocol(path), data, sync=sync)
        elif _OBJECT_STORES.isdisjoint(_protocols(self._fs)):
            partial = _partial(path)
            try:
                self._fs.pipe_file(partial, data)
                self._fs.mv(partial, path)
            except BaseException:
                with suppress(Exception):
                    self._fs.rm_file(partial)
                raise
        else:
            self._fs.pipe_file(path, data)

    def read(self, path: str) -> bytes:
        return bytes(self._fs.cat_file(path))

    def check_regular(self, path: str) -> None:
        if self.has_fsync:  # in a bucket there is nothing else
            super().check_regular(self._fs._strip_protocol(path))

    def has_data(self, path: str) -> bool:
        self.check_regular(path)
        try:
            return bool(self._fs.cat_file(path, start=0, end=len(NOTE)) != NOTE)
        except FileNotFoundError:
            return False

    def names(self, folder: str) -> list[str]:
        return [name for name, kind in self._list(folder) if kind == "file"]

    def _list(self, folder: str) -> list[tuple[str, str]]:
        """Names in a folder, with their types."""
        self._fs.invalidate_cache()  # some ignore the option
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
            raise lmc.UnsupportedError(f"{path}: the storage has no modification time") from e

    def now(self, folder: str) -> float:
        # The clock of this machine may differ from the server's.
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
    """A time as reported by fsspec."""
    return float(when.timestamp() if hasattr(when, "timestamp") else when)


def _partial(path: str) -> str:
    """The name of a file until it is complete. Another process may write one for the same path."""
    return f"{path}.{secrets.token_hex(4)}.tmp"


def settle(partial: str | os.PathLike[str], path: str | os.PathLike[str]) -> None:
    """Gives a file its name, in the same directory, and brings both to stable storage; one of that name is replaced."""
    _sync(partial)
    os.replace(partial, path)
    try:
        _sync(os.path.dirname(path) or ".")
    except OSError as e:
        if e.errno != errno.EINVAL:  # the file system cannot sync directories
            raise


def _sync(path: str | os.PathLike[str]) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def metadata_name(rank: int | None) -> str:
    """The name of the metadata of a checkpoint, or of what one rank saved without collectives."""
    return METADATA if rank is None else f"__{rank}{METADATA}"


def no_options(path: str | os.PathLike[str], options: StorageOptions) -> None:
    """Raises `lmc.UsageError` for options of a directory."""
    if options:
        # Without their values, which may be secret.
        names = ", ".join(map(repr, options))
        raise lmc.UsageError(f"storage_options has {names}, but {os.fspath(path)} is a directory: options are of URLs")


def storage_of(
    path: str | os.PathLike[str], options: StorageOptions, trust: Trust = ()
) -> tuple[FileSystem, Storage, Any]:
    """Opens a location: PyTorch's file system and ours, and the path as they take it."""
    names = _unpickle.trusted(trust)
    if is_url(path):
        remote = Remote(os.fspath(path), dict(options or {}))
        # PyTorch's classes are annotated for a directory, but take any.
        return cast(FileSystem, remote), Fsspec(remote, names), os.fspath(path)
    no_options(path, options)
    local = FileSystem()
    return local, Storage(local, names), local.init_path(path)
