import datetime
import io
import os
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeAlias, final, type_check_only

from _typeshed import ReadableBuffer as _Buffer

from lmc._records import (
    BaseInfo,
    Copied,
    Cost,
    Digest,
    Estimate,
    FileInfo,
    Garbage,
    Pruned,
    PrunePlan,
    Saved,
    Summary,
    Verified,
    Version,
)
from lmc.analysis import Analysis as _Analysis

# Arrays of numpy are buffers, but say so to type checkers from Python 3.12 on only.
@type_check_only
class _Array(Protocol):
    @property
    def __array_interface__(self) -> dict[str, Any]: ...

_Readable: TypeAlias = _Buffer | _Array | DlpackMemory
_Writable: TypeAlias = _Buffer | _Array | DlpackMemory
_Path: TypeAlias = str | os.PathLike[str]
_OneBase: TypeAlias = _Readable | _Path | File | Base
_Base: TypeAlias = _OneBase | Sequence[_OneBase] | None
_GivenTensor: TypeAlias = tuple[str, str, Sequence[int], "_Readable | _Seekable"]
_Wanted: TypeAlias = tuple[str, _Writable] | tuple[str, int, int, _Writable]
_Contents: TypeAlias = (
    _Path | _Readable | list[_GivenTensor] | TensorList | tuple[Iterable[_GivenTensor], dict[str, str]]
)
_Inputs: TypeAlias = Mapping[str, _Contents] | Sequence[_Path]
_At: TypeAlias = int | str | Snapshot | None
_Metadata: TypeAlias = Mapping[str, str | float]
_Best: TypeAlias = tuple[str, str] | tuple[str, str, int]

@type_check_only
class _Reader(Protocol):
    def read(self, size: int, /) -> bytes: ...

@type_check_only
class _Seekable(_Reader, Protocol):
    def seek(self, offset: int, whence: int = ..., /) -> Any: ...

@type_check_only
class _Writer(Protocol):
    def write(self, data: bytes, /) -> Any: ...

__all__ = [
    "Base",
    "Compressor",
    "Decompressor",
    "DirectoryFollower",
    "DlpackMemory",
    "File",
    "Header",
    "LEVELS",
    "Snapshot",
    "SnapshotReader",
    "Staged",
    "StagedTensors",
    "Store",
    "Tensor",
    "TensorFollower",
    "TensorList",
    "__version__",
    "analyze",
    "compress",
    "compress_bound",
    "compress_file",
    "compress_into",
    "compress_stream",
    "compress_tensors",
    "compress_tensors_file",
    "decompress",
    "decompress_file",
    "decompress_into",
    "decompress_stream",
    "estimate",
    "is_url",
    "run_command",
]

__version__: Final[str]
LEVELS: Final[list[str]]

def analyze(
    checkpoints: _Path | Sequence[_Path] | Store,
    *,
    every: int = 1,
    distances: Iterable[int] | None = None,
    engines: Sequence[str] = ...,
    exact: bool = False,
    level: str = "default",
    threads: int | None = None,
    max_work: int | None = None,
) -> _Analysis: ...
def compress(
    data: _Readable,
    *,
    dtype: str | None = None,
    base: _Base = None,
    level: str = "default",
    threads: int | None = None,
    digest: bool = False,
) -> bytes: ...
def compress_into(
    data: _Readable,
    out: _Writable,
    *,
    dtype: str | None = None,
    base: _Base = None,
    level: str = "default",
    threads: int | None = None,
) -> int: ...
def compress_bound(size: int) -> int: ...
def decompress(
    data: _Readable,
    *,
    base: _Base = None,
    threads: int | None = None,
    max_size: int | None = None,
    max_work: int | None = None,
) -> bytes: ...
def decompress_into(
    data: _Readable,
    out: _Writable,
    *,
    base: _Base = None,
    threads: int | None = None,
    max_work: int | None = None,
) -> int: ...
def estimate(
    data: _Readable | _Path,
    *,
    dtype: str | None = None,
    base: _Base = None,
    level: str = "default",
    threads: int | None = None,
) -> Estimate: ...
def compress_tensors(
    tensors: Iterable[_GivenTensor] | TensorList,
    *,
    metadata: dict[str, str] | None = None,
    base: _Base = None,
    level: str = "default",
    threads: int | None = None,
) -> bytes: ...
def compress_tensors_file(
    tensors: Iterable[_GivenTensor] | TensorList,
    dst: _Path,
    *,
    metadata: dict[str, str] | None = None,
    base: _Base = None,
    level: str = "default",
    threads: int | None = None,
    overwrite: bool = True,
) -> Summary: ...
def compress_file(
    src: _Path,
    dst: _Path,
    *,
    dtype: str | None = None,
    base: _Base = None,
    level: str = "default",
    threads: int | None = None,
    overwrite: bool = True,
    digest: bool = False,
) -> Summary: ...
def decompress_file(
    src: _Path,
    dst: _Path,
    *,
    base: _Base = None,
    threads: int | None = None,
    max_size: int | None = None,
    max_work: int | None = None,
    overwrite: bool = True,
) -> Summary: ...
def compress_stream(
    src: _Path | _Reader,
    dst: _Path | _Writer,
    *,
    dtype: str | None = None,
    base: _Base = None,
    level: str = "default",
    threads: int | None = None,
    digest: bool = False,
) -> Summary: ...
def decompress_stream(
    src: _Path | _Reader,
    dst: _Path | _Writer,
    *,
    base: _Base = None,
    threads: int | None = None,
    max_size: int | None = None,
    max_work: int | None = None,
) -> Summary: ...
def is_url(location: _Path) -> bool: ...
def run_command(args: Sequence[str]) -> int: ...

@final
class Compressor:
    def __new__(cls, *, dtype: str | None = None, level: str = "default", threads: int | None = None) -> Self: ...
    def compress(self, data: _Readable, *, base: _Base = None) -> bytes: ...
    def compress_into(self, data: _Readable, out: _Writable, *, base: _Base = None) -> int: ...

@final
class Decompressor:
    def __new__(
        cls, *, threads: int | None = None, max_size: int | None = None, max_work: int | None = None
    ) -> Self: ...
    def decompress(self, data: _Readable, *, base: _Base = None) -> bytes: ...
    def decompress_into(self, data: _Readable, out: _Writable, *, base: _Base = None) -> int: ...

@final
class Tensor:
    name: Final[str]
    dtype: Final[str]
    shape: Final[tuple[int, ...]]
    offset: Final[int]
    nbytes: Final[int]

@final
class DlpackMemory:
    def __new__(cls, capsule: object, /) -> Self: ...
    def __len__(self) -> int: ...

@final
class TensorList:
    def __new__(cls) -> Self: ...
    def add(self, name: str, dtype: str, shape: Sequence[int], data: _Readable | _Seekable, /) -> None: ...
    def add_all(self, tensors: Iterable[tuple[str, str | None, object]]) -> bool: ...
    def header(self) -> bytes: ...
    def overlap(self) -> bool: ...
    def __len__(self) -> int: ...

@final
class Base:
    def __new__(cls, source: _Readable | _Path | File, *, name: str) -> Self: ...
    name: Final[str]

@final
class File:
    def __new__(
        cls,
        file: _Path | _Readable | _Seekable,
        *,
        base: _Base = None,
        threads: int | None = None,
        plain: bool = False,
        max_work: int | None = None,
    ) -> Self: ...
    def close(self) -> None: ...
    @property
    def closed(self) -> bool: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None, /
    ) -> None: ...
    name: Final[pathlib.Path | None]
    compressed: Final[bool]
    size: Final[int]
    compressed_size: Final[int]
    content_hash: Final[str]
    layout: Final[str]
    bases: Final[list[BaseInfo]]
    features: Final[list[str]]
    digests: Final[list[Digest]]
    def keys(self) -> list[str]: ...
    def tensors(self) -> list[Tensor]: ...
    def __contains__(self, name: str, /) -> bool: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[str]: ...
    def __getitem__(self, name: str, /) -> bytes: ...
    def open(self) -> io.BufferedReader: ...
    def tensor(self, name: str) -> Tensor: ...
    def read(self, name: str) -> bytes: ...
    def read_into(self, name: str, out: _Writable) -> int: ...
    def read_rows(self, name: str, start: int, stop: int) -> bytes: ...
    def read_rows_into(self, name: str, start: int, stop: int, out: _Writable) -> int: ...
    def read_range(self, offset: int, size: int) -> bytes: ...
    def read_range_into(self, offset: int, out: _Writable) -> int: ...
    def read_many_into(self, wanted: Iterable[_Wanted]) -> int: ...
    def read_ranges_into(self, wanted: Iterable[tuple[int, _Writable]]) -> int: ...
    def safetensors_header(self) -> Header: ...

@final
class Header:
    def names(self) -> list[str]: ...
    def dtypes(self) -> list[str]: ...
    def tensors(self) -> list[Tensor]: ...
    def metadata(self) -> dict[str, str] | None: ...
    def __len__(self) -> int: ...

@final
class Snapshot:
    step: Final[int]
    id: Final[str]
    time: Final[int]
    metadata: Final[dict[str, str | int | float]]
    shards: Final[list[str]]
    raw_size: Final[int]
    new_size: Final[int]
    dropped: Final[int]

@final
class SnapshotReader:
    snapshot: Final[Snapshot]
    files: Final[list[FileInfo]]
    def keys(self) -> list[str]: ...
    def __contains__(self, name: str, /) -> bool: ...
    def tensor(self, name: str) -> Tensor: ...
    def read(self, name: str) -> bytes: ...
    def read_rows(self, name: str, start: int, stop: int) -> bytes: ...
    def read_into(self, name: str, out: _Writable) -> int: ...
    def read_many_into(self, wanted: Iterable[_Wanted]) -> int: ...
    def read_file(self, name: str) -> bytes: ...
    def read_range_into(self, name: str, offset: int, out: _Writable) -> int: ...
    def read_ranges_into(self, wanted: Iterable[tuple[str, int, _Writable]]) -> int: ...
    def restore(self, name: str, dst: _Path, *, overwrite: bool = True) -> None: ...

@final
class Staged:
    version: Final[Version]
    base_step: Final[int | None]
    linked_size: Final[int]
    written_size: Final[int]
    fetched_size: Final[int]

@final
class DirectoryFollower:
    @property
    def current(self) -> Version | None: ...
    def stage(self) -> Staged | None: ...
    def commit(self, staged: Staged) -> Version: ...
    def update(self) -> Version | None: ...
    def repair(self) -> list[str]: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *_exception: object) -> None: ...

@final
class TensorFollower:
    @property
    def current(self) -> tuple[int, str] | None: ...
    def newest(self) -> Snapshot | None: ...
    def names(self, snapshot: Snapshot) -> list[str]: ...
    def tensor(self, snapshot: Snapshot, name: str) -> Tensor: ...
    def add(self, tensors: Iterable[tuple[str, str, tuple[int, ...], int | None]]) -> None: ...
    def forget(self, tensors: Sequence[int]) -> None: ...
    def tie(self, names: Sequence[tuple[str, int]]) -> None: ...
    def load(self, snapshot: Snapshot, tensors: Iterable[_Writable]) -> int: ...
    def adopt(self, snapshot: Snapshot, tensors: Iterable[_Readable]) -> None: ...
    def stage(self, snapshot: Snapshot, tensors: Iterable[_Readable]) -> StagedTensors: ...
    def commit(self, staged: StagedTensors, tensors: Iterable[_Writable]) -> None: ...
    def close(self) -> None: ...

@final
class StagedTensors:
    step: Final[int]
    id: Final[str]
    base_step: Final[int]
    changed: Final[int]
    fetched_size: Final[int]
    def __len__(self) -> int: ...
    def patch(self, number: int) -> tuple[int, int, int, int, bytes | None, bytes]: ...

@final
class Store:
    def __new__(cls, location: _Path, *, cache: _Path | None = None, cache_size: int = ...) -> Self: ...
    @staticmethod
    def create(
        location: _Path,
        *,
        grace_seconds: int = 86400,
        run: str | None = None,
        cache: _Path | None = None,
        cache_size: int = ...,
    ) -> Store: ...
    location: Final[str]
    run: Final[str]
    def snapshots(self, *, last: int | None = None) -> list[Snapshot]: ...
    def find(self, at: _At = None) -> Snapshot: ...
    def open_snapshot(self, at: _At = None, *, strict: bool = False, threads: int | None = None) -> SnapshotReader: ...
    def save(
        self,
        state: Any,
        *,
        step: int | None = None,
        metadata: _Metadata | None = None,
        tag: str | None = None,
        level: str = "default",
        threads: int | None = None,
        base: str | int | Snapshot = ...,
        anchor_every: int = 16,
        alternatives: bool = False,
    ) -> Snapshot: ...
    def load(
        self,
        at: _At = None,
        *,
        into: Any = None,
        device: Any = None,
        strict: bool = False,
        threads: int | None = None,
    ) -> Any: ...
    def save_files(
        self,
        inputs: _Inputs,
        *,
        step: int | None = None,
        metadata: _Metadata | None = None,
        tag: str | None = None,
        level: str = "default",
        threads: int | None = None,
        base: str | int | Snapshot = ...,
        anchor_every: int = 16,
        alternatives: bool = False,
    ) -> Snapshot: ...
    def save_shard(
        self,
        inputs: _Inputs,
        *,
        step: int,
        level: str = "default",
        threads: int | None = None,
        base: str | int | Snapshot = ...,
        anchor_every: int = 16,
        alternatives: bool = False,
    ) -> Saved: ...
    def publish(
        self,
        step: int,
        shards: Sequence[str],
        *,
        metadata: _Metadata | None = None,
        overwrite: bool = False,
    ) -> Snapshot: ...
    def has_shards(self, at: _At, shards: Sequence[str]) -> bool: ...
    def restore(
        self,
        directory: _Path,
        at: _At = None,
        *,
        names: Sequence[str] | None = None,
        strict: bool = False,
        threads: int | None = None,
        overwrite: bool = True,
    ) -> list[pathlib.Path]: ...
    def follow(
        self,
        directory: _Path,
        *,
        rewind: bool = False,
        verify: bool = False,
        threads: int | None = None,
    ) -> DirectoryFollower: ...
    def follow_tensors(
        self,
        tensors: Iterable[tuple[str, str, Sequence[int], int | None]],
        *,
        rewind: bool = False,
        verify: bool = False,
        threads: int | None = None,
    ) -> TensorFollower: ...
    def verify(
        self, at: _At = None, *, deep: bool = False, threads: int | None = None, expect: Sequence[int] = ...
    ) -> Verified: ...
    def cost(self, at: _At = None) -> Cost: ...
    def tag(self, name: str, at: _At = None) -> Snapshot: ...
    def untag(self, name: str) -> None: ...
    def tags(self) -> dict[str, int]: ...
    def plan_prune(
        self,
        *,
        keep_last: int = 0,
        keep_every: int | None = None,
        keep_within: datetime.timedelta | int | None = None,
        keep_best: _Best | list[_Best] = ...,
        keep_steps: Sequence[int] = ...,
        drop: Sequence[int] = ...,
        damaged: Sequence[int] = ...,
        drop_state: bool = False,
    ) -> PrunePlan: ...
    def prune(
        self,
        *,
        keep_last: int = 0,
        keep_every: int | None = None,
        keep_within: datetime.timedelta | int | None = None,
        keep_best: _Best | list[_Best] = ...,
        keep_steps: Sequence[int] = ...,
        drop: Sequence[int] = ...,
        damaged: Sequence[int] = ...,
        drop_state: bool = False,
        level: str = "default",
        threads: int | None = None,
    ) -> Pruned: ...
    def garbage(self, *, without_records: bool = False) -> Garbage: ...
    def gc(self, *, without_records: bool = False) -> Garbage: ...
    def copy_from(self, other: Store, at: _At = None, *, skip_damaged: bool = False) -> Copied: ...
    def close(self) -> None: ...
    @property
    def closed(self) -> bool: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *_exception: object) -> None: ...
