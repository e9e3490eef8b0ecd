"""Records: what functions and methods of the extension return. They are compared, shown and pickled by their fields."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from reprlib import Repr
from typing import TYPE_CHECKING, Any, TypeVar, dataclass_transform

if TYPE_CHECKING:
    from lmc._lmc import Snapshot, Tensor

T = TypeVar("T")

_short = Repr()
_short.maxstring = _short.maxother = 200


class Record:
    """The base of all of them."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and _values(self) == _values(other)

    def __hash__(self) -> int:
        # Equal records show themselves alike, and their lists cannot be hashed.
        return hash(repr(self))

    def __repr__(self) -> str:
        shown = (f"{name}={_short.repr(value)}" for name, value in _values(self).items())
        return f"{type(self).__name__}({', '.join(shown)})"


def _values(record: Any) -> dict[str, Any]:
    return {field.name: getattr(record, field.name) for field in fields(record)}


@dataclass_transform(frozen_default=True, eq_default=False)
def _record(of: type[T]) -> type[T]:
    make: Callable[[type[T]], type[T]] = dataclass(frozen=True, slots=True, eq=False, repr=False)
    return make(of)


@_record
class Summary(Record):
    """The result of compressing or restoring."""

    raw_size: int
    compressed_size: int
    content_hash: str
    blocks: int
    unlisted_tensors: int


@_record
class Estimate(Record):
    """The estimated result of compressing; `margin` is two standard errors."""

    raw_size: int
    compressed_size: int
    margin: int
    sampled: int


@_record
class BaseInfo(Record):
    """A base of a delta."""

    name: str
    size: int
    content_hash: str


@_record
class Digest(Record):
    """A cryptographic digest that a file has of its raw bytes (`source` 0), or of those of its base number `source`."""

    source: int
    algorithm: str
    digest: str


@_record
class Saved(Record):
    """A saved shard, not published yet."""

    shard: str
    raw_size: int
    new_size: int
    document_size: int
    """Bytes of the document that locates the stored data."""
    base_step: int | None
    """The step of the snapshot that it was made from, if it was made from one."""
    elements: int
    """Elements of the tensors."""
    changed: int | None
    """How many of them changed, where the deltas say that."""
    read_seconds: float
    compress_seconds: float
    upload_seconds: float
    """Seconds of reading, compressing, and waiting for the store."""
    notes: list[str]
    """What is wrong with earlier snapshots, as far as it was noticed. Nothing that was saved depends on these."""


@_record
class FileInfo(Record):
    """A file of a snapshot."""

    name: str
    nbytes: int
    layout: str
    tensors: "list[Tensor]"


@_record
class Problem(Record):
    """A problem of a snapshot."""

    step: int
    lost: list[tuple[str, str | None]]
    """File, and tensor or `None` for bytes between tensors; empty if the whole snapshot is lost."""
    intact: bool
    """Whether the snapshot can be restored whole all the same."""
    message: str
    remedy: str | None
    """What can be done."""


@_record
class Verified(Record):
    """The result of a verification."""

    objects: int
    block_sets: int
    problems: list[Problem]
    tags: list[str]
    """What is wrong with tags: they cannot be read, or name snapshots that are gone."""
    notes: list[str]
    """Foreign or superseded objects in the store."""


@_record
class Cost(Record):
    """The cost of restoring a snapshot."""

    block_sets: int
    stored_size: int
    longest_chain: int


@_record
class PrunePlan(Record):
    """The plan of a pruning: steps, and bytes of data that snapshots need."""

    keep: list[int]
    why: list[list[str]]
    """For each step to keep, the rules that keep it: `last`, `every`, `within`, `step`, `best KEY` and `tag NAME`."""
    prune: list[int]
    states: list[int]
    """Those that stay without the states of their optimizers."""
    damaged: list[int]
    left_out: list[int]
    rebase: list[int]
    broken: list[int]
    """Those that would stay and cannot be restored: nothing is pruned as long as there is one."""
    before: int
    after: int
    obstacle: str | None


@_record
class Pruned(Record):
    """The result of a pruning."""

    pruned: list[int]
    rebased: list[int]
    reduced: list[int]
    """Those that lost the states of their optimizers."""
    changed: list[int]


@_record
class Orphan(Record):
    """An object that no snapshot needs."""

    key: str
    size: int
    time: int


@_record
class Garbage(Record):
    """The objects that no snapshot needs."""

    time: int
    orphans: list[Orphan]
    young: list[Orphan]
    unseen: str | None


@_record
class Copied(Record):
    """The result of copying snapshots."""

    snapshots: "list[Snapshot]"
    skipped: int
    """How many were there already."""
    damaged: list[tuple[int, str]]
    """Steps that cannot be copied, each with the reason."""
    left_out: list[int]
    """Steps whose records in the destination cannot be read."""
    notes: list[str]
    """What is wrong with snapshots of the destination, as far as it was noticed. No copy depends on these."""


@_record
class Version(Record):
    """A version in a directory: a snapshot with its files."""

    step: int
    id: str
    path: Path
    """The directory of its files."""
