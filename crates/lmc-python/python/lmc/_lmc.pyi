import os
import pathlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeAlias, TypeVar, final, type_check_only

from _typeshed import ReadableBuffer as _Buffer

from lmc._analysis import Analysis as _Analysis

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
_Contents: TypeAlias = _Path | _Readable | list[_GivenTensor] | tuple[Iterable[_GivenTensor], dict[str, str]]
_Inputs: TypeAlias = Mapping[str, _Contents] | Sequence[_Path]
_At: TypeAlias = int | str | Snapshot | None
_Made = TypeVar("_Made")

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
    "BaseInfo",
    "Compressor",
    "Copied",
    "Cost",
    "DTYPES",
    "Decompressor",
    "DlpackMemory",
    "Estimate",
    "FORMATS",
    "FORMAT_VERSION",
    "File",
    "FileInfo",
    "Follower",
    "Garbage",
    "Header",
    "LEVELS",
    "Orphan",
    "Problem",
    "PrunePlan",
    "Pruned",
    "Saved",
    "Snapshot",
    "SnapshotReader",
    "Staged",
    "StagedTensors",
    "Store",
    "Summary",
    "Tensor",
    "TensorFollower",
    "TensorList",
    "Verified",
    "Version",
    "__version__",
    "analyze",
    "check_pickle",
    "chunks_by_file",
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
FORMAT_VERSION: Final[int]
FORMATS: Final[list[str]]
DTYPES: Final[list[str]]
LEVELS: Final[list[str]]

def analyze(
    checkpoints: _Path | Sequence[_Path] | Store,
    *,
    every: int = 1,
    distances: Iterable[int] | None = None,
    pairs: int = 4,
    engines: Sequence[str] = ...,
    sample: int = 4_000_000,
    independent: bool = False,
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
    format: str | None = None,
    threads: int | None = None,
) -> bytes: ...
def compress_into(
    data: _Readable,
    out: _Writable,
    *,
    dtype: str | None = None,
    base: _Base = None,
    level: str = "default",
    format: str | None = None,
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
    format: str | None = None,
    threads: int | None = None,
) -> Estimate: ...
def compress_tensors(
    tensors: Iterable[_GivenTensor] | TensorList,
    *,
    metadata: dict[str, str] | None = None,
    base: _Base = None,
    level: str = "default",
    format: str | None = None,
    threads: int | None = None,
) -> bytes: ...
def compress_tensors_file(
    tensors: Iterable[_GivenTensor] | TensorList,
    dst: _Path,
    *,
    metadata: dict[str, str] | None = None,
    base: _Base = None,
    level: str = "default",
    format: str | None = None,
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
    format: str | None = None,
    threads: int | None = None,
    overwrite: bool = True,
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
    format: str | None = None,
    threads: int | None = None,
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
def check_pickle(data: bytes) -> None: ...
def chunks_by_file(metadata: bytes, max_len: int) -> dict[str, list[str]]: ...
def is_url(location: _Path) -> bool: ...
def run_command(args: Sequence[str]) -> int: ...

@final
class Compressor:
    def __new__(
        cls, *, dtype: str | None = None, level: str = "default", format: str | None = None, threads: int | None = None
    ) -> Self: ...
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
class Estimate:
    @property
    def raw_size(self) -> int: ...
    @property
    def compressed_size(self) -> int: ...
    @property
    def sampled(self) -> int: ...

@final
class Summary:
    @property
    def raw_size(self) -> int: ...
    @property
    def compressed_size(self) -> int: ...
    @property
    def content_hash(self) -> str: ...
    @property
    def blocks(self) -> int: ...

@final
class Tensor:
    @property
    def name(self) -> str: ...
    @property
    def dtype(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def offset(self) -> int: ...
    @property
    def nbytes(self) -> int: ...

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
class BaseInfo:
    @property
    def name(self) -> str: ...
    @property
    def size(self) -> int: ...
    @property
    def content_hash(self) -> str: ...

@final
class Base:
    def __new__(cls, source: _Readable | _Path | File, *, name: str) -> Self: ...
    @property
    def name(self) -> str: ...

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
    @property
    def name(self) -> pathlib.Path | None: ...
    @property
    def compressed(self) -> bool: ...
    @property
    def size(self) -> int: ...
    @property
    def compressed_size(self) -> int: ...
    @property
    def content_hash(self) -> str: ...
    @property
    def layout(self) -> str: ...
    @property
    def bases(self) -> list[BaseInfo]: ...
    def keys(self) -> list[str]: ...
    def tensors(self) -> list[Tensor]: ...
    def __contains__(self, name: str, /) -> bool: ...
    def tensor(self, name: str) -> Tensor: ...
    def read(self, name: str) -> bytes: ...
    def read_into(self, name: str, out: _Writable) -> int: ...
    def read_rows(self, name: str, start: int, stop: int) -> bytes: ...
    def read_rows_into(self, name: str, start: int, stop: int, out: _Writable) -> int: ...
    def read_range(self, offset: int, size: int) -> bytes: ...
    def read_range_into(self, offset: int, out: _Writable) -> int: ...
    def read_many_into(self, wanted: Iterable[_Wanted]) -> int: ...
    def read_ranges_into(self, wanted: Iterable[tuple[int, _Writable]]) -> int: ...
    def read_small(
        self,
        header: Header,
        limit: int,
        others: Iterable[tuple[int, _Writable]],
        make: Callable[[Any], _Made],
    ) -> dict[str, _Made]: ...
    def read_small_arrays(
        self,
        header: Header,
        limit: int,
        others: Iterable[tuple[int, _Writable]],
        make: Callable[[tuple[int, ...], Any, Any, int], _Made],
        dtypes: dict[str, Any],
    ) -> dict[str, _Made]: ...
    def safetensors_header(self) -> Header: ...

@final
class Header:
    def names(self) -> list[str]: ...
    def dtypes(self) -> list[str]: ...
    def tensors(self, above: int | None = None) -> list[Tensor]: ...
    def metadata(self) -> dict[str, str] | None: ...
    def __len__(self) -> int: ...

@final
class Snapshot:
    @property
    def step(self) -> int: ...
    @property
    def id(self) -> str: ...
    @property
    def time(self) -> int: ...
    @property
    def metadata(self) -> dict[str, str]: ...
    @property
    def shards(self) -> list[str]: ...
    @property
    def raw_size(self) -> int: ...
    @property
    def new_size(self) -> int: ...

@final
class Saved:
    @property
    def shard(self) -> str: ...
    @property
    def raw_size(self) -> int: ...
    @property
    def new_size(self) -> int: ...
    @property
    def document_size(self) -> int: ...
    @property
    def base_step(self) -> int | None: ...
    @property
    def elements(self) -> int: ...
    @property
    def changed(self) -> int | None: ...
    @property
    def read_seconds(self) -> float: ...
    @property
    def compress_seconds(self) -> float: ...
    @property
    def upload_seconds(self) -> float: ...
    @property
    def notes(self) -> list[str]: ...

@final
class FileInfo:
    @property
    def name(self) -> str: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def layout(self) -> str: ...
    @property
    def tensors(self) -> list[Tensor]: ...

@final
class Problem:
    @property
    def step(self) -> int: ...
    @property
    def lost(self) -> list[tuple[str, str | None]]: ...
    @property
    def intact(self) -> bool: ...
    @property
    def message(self) -> str: ...
    @property
    def remedy(self) -> str | None: ...

@final
class Verified:
    @property
    def objects(self) -> int: ...
    @property
    def block_sets(self) -> int: ...
    @property
    def problems(self) -> list[Problem]: ...
    @property
    def notes(self) -> list[str]: ...

@final
class Copied:
    @property
    def snapshots(self) -> list[Snapshot]: ...
    @property
    def skipped(self) -> int: ...
    @property
    def damaged(self) -> list[tuple[int, str]]: ...
    @property
    def left_out(self) -> list[int]: ...
    @property
    def notes(self) -> list[str]: ...

@final
class Cost:
    @property
    def block_sets(self) -> int: ...
    @property
    def stored_size(self) -> int: ...
    @property
    def longest_chain(self) -> int: ...

@final
class PrunePlan:
    @property
    def keep(self) -> list[int]: ...
    @property
    def prune(self) -> list[int]: ...
    @property
    def damaged(self) -> list[int]: ...
    @property
    def left_out(self) -> list[int]: ...
    @property
    def rebase(self) -> list[int]: ...
    @property
    def broken(self) -> list[int]: ...
    @property
    def before(self) -> int: ...
    @property
    def after(self) -> int: ...
    @property
    def obstacle(self) -> str | None: ...

@final
class Pruned:
    @property
    def pruned(self) -> list[int]: ...
    @property
    def rebased(self) -> list[int]: ...
    @property
    def changed(self) -> list[int]: ...

@final
class Orphan:
    @property
    def key(self) -> str: ...
    @property
    def size(self) -> int: ...
    @property
    def time(self) -> int: ...

@final
class Garbage:
    @property
    def time(self) -> int: ...
    @property
    def orphans(self) -> list[Orphan]: ...
    @property
    def young(self) -> list[Orphan]: ...
    @property
    def unseen(self) -> str | None: ...

@final
class SnapshotReader:
    @property
    def snapshot(self) -> Snapshot: ...
    @property
    def files(self) -> list[FileInfo]: ...
    def keys(self) -> list[str]: ...
    def __contains__(self, name: str, /) -> bool: ...
    def tensor(self, name: str) -> Tensor: ...
    def read(self, name: str) -> bytes: ...
    def read_rows(self, name: str, start: int, stop: int) -> bytes: ...
    def read_into(self, name: str, out: _Writable) -> int: ...
    def read_many_into(self, wanted: Iterable[_Wanted]) -> int: ...
    def read_file(self, name: str) -> bytes: ...
    def read_range_into(self, name: str, offset: int, out: _Writable) -> int: ...
    def restore(self, name: str, dst: _Path, *, overwrite: bool = True) -> None: ...

@final
class Version:
    @property
    def step(self) -> int: ...
    @property
    def id(self) -> str: ...
    @property
    def path(self) -> pathlib.Path: ...

@final
class Staged:
    @property
    def version(self) -> Version: ...
    @property
    def base_step(self) -> int | None: ...
    @property
    def linked_size(self) -> int: ...
    @property
    def written_size(self) -> int: ...
    @property
    def fetched_size(self) -> int: ...

@final
class Follower:
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
    def load(self, snapshot: Snapshot, tensors: Iterable[_Writable]) -> int: ...
    def adopt(self, snapshot: Snapshot, tensors: Iterable[_Readable]) -> None: ...
    def stage(self, snapshot: Snapshot, tensors: Iterable[_Readable]) -> StagedTensors: ...
    def commit(self, staged: StagedTensors, tensors: Iterable[_Writable]) -> None: ...
    def close(self) -> None: ...

@final
class StagedTensors:
    @property
    def step(self) -> int: ...
    @property
    def id(self) -> str: ...
    @property
    def base_step(self) -> int: ...
    @property
    def changed(self) -> int: ...
    @property
    def fetched_size(self) -> int: ...
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
    @property
    def location(self) -> str: ...
    @property
    def run(self) -> str: ...
    def snapshots(self) -> list[Snapshot]: ...
    def find(self, at: _At = None) -> Snapshot: ...
    def open_snapshot(self, at: _At = None, *, threads: int | None = None) -> SnapshotReader: ...
    def save(
        self,
        inputs: _Inputs,
        *,
        step: int | None = None,
        metadata: dict[str, str] | None = None,
        level: str = "default",
        format: str | None = None,
        threads: int | None = None,
        base: str = "auto",
        anchor_every: int = 16,
        alternatives: bool = False,
        from_step: int | None = None,
    ) -> Snapshot: ...
    def save_shard(
        self,
        inputs: _Inputs,
        *,
        step: int,
        level: str = "default",
        format: str | None = None,
        threads: int | None = None,
        base: str = "auto",
        anchor_every: int = 16,
        alternatives: bool = False,
        from_step: int | None = None,
    ) -> Saved: ...
    def publish(self, step: int, shards: Sequence[str], *, metadata: dict[str, str] | None = None) -> Snapshot: ...
    def restore(
        self,
        directory: _Path,
        at: _At = None,
        *,
        names: Sequence[str] | None = None,
        threads: int | None = None,
        overwrite: bool = True,
    ) -> list[pathlib.Path]: ...
    def follow(
        self,
        directory: _Path,
        *,
        keep: int = 1,
        rewind: bool = False,
        verify: bool = False,
        threads: int | None = None,
    ) -> Follower: ...
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
    def plan_prune(
        self,
        *,
        keep_last: int = 0,
        keep_every: int | None = None,
        keep_steps: Sequence[int] = ...,
        drop: Sequence[int] = ...,
        damaged: Sequence[int] = ...,
    ) -> PrunePlan: ...
    def prune(
        self,
        *,
        keep_last: int = 0,
        keep_every: int | None = None,
        keep_steps: Sequence[int] = ...,
        drop: Sequence[int] = ...,
        damaged: Sequence[int] = ...,
        level: str = "default",
        format: str | None = None,
        threads: int | None = None,
    ) -> Pruned: ...
    def garbage(self, *, without_records: bool = False) -> Garbage: ...
    def gc(self, *, without_records: bool = False) -> Garbage: ...
    def copy_from(
        self, other: Store, at: _At = None, *, mix_runs: bool = False, skip_damaged: bool = False
    ) -> Copied: ...
    def close(self) -> None: ...
    @property
    def closed(self) -> bool: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *_exception: object) -> None: ...
