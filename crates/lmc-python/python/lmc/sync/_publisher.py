"""Publishing the weights of a run."""

import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self, TypeAlias

from lmc._errors import ExistsError, NotFoundError, UsageError
from lmc._lmc import Store
from lmc._records import Saved
from lmc.sync._libraries import library_of
from lmc.sync._part import INDEX, Part, check_together, file_of, in_files, index_of, unwritten

Path: TypeAlias = str | os.PathLike[str]

# The name of the file that tensors are saved as.
_FILE: Final = "model.safetensors"


@dataclass(frozen=True)
class Published:
    """A version that followers can get."""

    step: int
    id: str
    raw_size: int
    """Bytes of the weights."""
    new_size: int
    """Bytes stored for this version."""
    document_size: int
    """Bytes of the document that says where they are."""
    elements: int
    """Elements of the tensors."""
    changed: int | None
    """How many of them changed since the version before; `None` where the deltas do not say it."""
    seconds: float
    phases: dict[str, float]
    """Seconds of `"read"`, `"compress"`, `"upload"` and `"commit"`: reading what is not in memory, and compressing,
    with getting bases, both as the average of the threads; waiting until all is stored; making the version appear."""

    @property
    def density(self) -> float | None:
        """The share of elements that changed."""
        return None if self.changed is None or not self.elements else self.changed / self.elements


class Publisher:
    """Publishes versions of a model to a store: a directory or a bucket, which is created if missing, or a `Store`,
    whose cache it uses.

    A version is a snapshot of the store: it appears when it is complete and durable, and what followers have is its
    base. Tensors that did not change take no space; every `anchor_every`-th version of one that does is stored whole as
    well as the change, so that a follower that begins late reads no more than that many. The weights of the last
    version stay in memory, up to `cache_size` bytes, so that the next one need not read them. `level` and
    `threads` are as for `lmc.compress`.
    """

    def __init__(
        self,
        store: Store | Path,
        *,
        level: str = "fast",
        anchor_every: int = 16,
        cache_size: int = 16 << 30,
        threads: int | None = None,
    ) -> None:
        self._owns = not isinstance(store, Store)
        self._store = store if isinstance(store, Store) else Store.create(store, cache="memory", cache_size=cache_size)
        self._level = level
        self._anchor_every = anchor_every
        self._threads = threads

    @property
    def store(self) -> Store:
        """The store."""
        return self._store

    def publish(
        self,
        weights: Mapping[str, Any] | Iterable[tuple[str, Any]] | Path,
        *,
        step: int | None = None,
        metadata: dict[str, str] | None = None,
    ) -> Published:
        """Publishes tensors by name, or pairs of name and tensor, or a file, or a directory of files, as a version.

        Tensors of torch, on any device, or arrays of numpy are saved as `model.safetensors`. Of tied tensors of torch,
        which are the same memory in the same shape, one is saved; others may overlap. They must not be written to
        meanwhile: if torch counts a write (not those through `.data`, and none to arrays of numpy), the version is not
        published. Files that change while they are read are not published. Pairs, as of a generator, are saved as
        `save_part` does it, so that not all are in memory at once. `step` is the version's number, by default the one
        after the last.

        Raises `lmc.ExistsError` when another publisher has published this step, `lmc.UsageError` when it comes before
        the last one, or these are no such weights: then followers have what they had. `lmc.StoreError` when the store
        cannot be reached: the version may have been published all the same, which `store.find(step)` says.
        """
        if not isinstance(weights, str | os.PathLike | Mapping):
            step = _check_order(step, self._last_step())
            return self.publish_parts([self.save_part(weights, step=step, rank=0, world_size=1)], metadata=metadata)
        start = time.monotonic()
        step = _check_order(step, self._last_step())
        if isinstance(weights, Mapping):
            check = unwritten(weights)
            saved = self._save({_FILE: library_of(weights).given(weights)}, step)
            check()
        else:
            saved = self._save([weights], step)
        begun = time.monotonic()
        snapshot = self._store.publish(step, [saved.shard], metadata=metadata)
        now = time.monotonic()
        phases = {"read": saved.read_seconds, "compress": saved.compress_seconds, "upload": saved.upload_seconds}
        return Published(
            snapshot.step,
            snapshot.id,
            snapshot.raw_size,
            snapshot.new_size,
            saved.document_size,
            saved.elements,
            saved.changed,
            now - start,
            phases | {"commit": now - begun},
        )

    def save_part(
        self,
        weights: Mapping[str, Any] | Iterable[tuple[str, Any]],
        *,
        step: int,
        rank: int,
        world_size: int,
        attempt: str = "",
        file_size: int = 4 << 30,
    ) -> Part:
        """Saves tensors of one rank, by name or as pairs of name and tensor, as a part of a version.

        Each rank has a `Publisher` and saves other tensors; one of them gets the parts of all, and publishes these.
        Nothing appears before. The ranks begin when the version before was published. `attempt` tells parts apart that
        were saved for one step several times, as when a rank failed and all began again: any word that the ranks agree
        on, as a random one that rank 0 makes and broadcasts.

        The tensors are saved as files of `file_size` bytes or a little more, each when it is complete: of pairs that a
        generator makes, no more are in memory, besides `cache_size` of the publisher. A tensor must not be written to
        until its file is saved, nor its memory be used for another one: the same tensor of torch may come twice, others
        must not overlap. (Writes to an array of numpy are not counted, so not even the same one may come twice.)

        Raises as `publish`, and `lmc.UsageError` when two tensors have one name, or pairs are of tensors that overlap,
        or were written to: not all writes are noticed, as those to arrays of numpy.
        """
        if not 0 <= rank < world_size:
            raise UsageError(f"rank={rank}: must be from 0 to {world_size - 1}, as world_size={world_size}")
        if file_size < 1:
            raise UsageError(f"file_size={file_size}: must be 1 or more")
        start = time.monotonic()
        base_step = self._last_step()
        _check_order(step, base_step)
        saved, tensor_size = [], 0
        files = dict[str, tuple[str, ...]]()
        for number, tensors in enumerate(in_files(weights, file_size)):
            name = f"model-{rank:05}-{number:05}.safetensors"
            given, sizes = file_of(tensors)
            check = unwritten(tensors)
            saved.append(self._save({name: given}, step))
            check()
            # Nothing may hold tensors when the next ones are made.
            del given, check
            files[name] = tuple(sizes)
            tensor_size += sum(sizes.values())
        changed = [part.changed for part in saved]
        return Part(
            step=step,
            rank=rank,
            world_size=world_size,
            run=self._store.run,
            attempt=attempt,
            base_step=base_step,
            shards=tuple(part.shard for part in saved),
            files=files,
            raw_size=sum(part.raw_size for part in saved),
            tensor_size=tensor_size,
            document_size=sum(part.document_size for part in saved),
            elements=sum(part.elements for part in saved),
            changed=None if None in changed else sum(n for n in changed if n is not None),
            seconds=time.monotonic() - start,
            phases={
                "read": sum(part.read_seconds for part in saved),
                "compress": sum(part.compress_seconds for part in saved),
                "upload": sum(part.upload_seconds for part in saved),
            },
        )

    def publish_parts(self, parts: Iterable[Part], *, metadata: dict[str, str] | None = None) -> Published:
        """Publishes the parts of all ranks as a version, with an index of their files.

        `seconds` is that of the slowest rank and of this call; each of `phases` is the longest of any rank. `changed`
        is `None` if a part was saved before the last version was published.

        Raises `lmc.UsageError` unless each rank's part is there once, all are of one step, of one attempt and of this
        store's run, and no tensor is in two of them; `lmc.ExpiredError` when one was saved too long ago; otherwise as
        `publish`.
        """
        start = time.monotonic()
        parts = sorted(parts, key=lambda part: part.rank)
        check_together(parts)
        step = parts[0].step
        if parts[0].run != self._store.run:
            raise UsageError(f"the parts are of run {parts[0].run}, and the store is of run {self._store.run}")
        last = self._last_step()
        _check_order(step, last)
        shards = [shard for part in parts for shard in part.shards]
        if not shards:
            raise UsageError(f"step {step}: there are no tensors to publish")
        index = self._save({INDEX: index_of(parts)}, step)
        begun = time.monotonic()
        snapshot = self._store.publish(step, [*shards, index.shard], metadata=metadata)
        now = time.monotonic()
        phases = {phase: max(part.phases[phase] for part in parts) for phase in parts[0].phases}
        unknown = any(part.changed is None or part.base_step != last for part in parts)
        return Published(
            snapshot.step,
            snapshot.id,
            snapshot.raw_size,
            snapshot.new_size,
            index.document_size + sum(part.document_size for part in parts),
            sum(part.elements for part in parts),
            None if unknown else sum(part.changed or 0 for part in parts),
            now - start + max(part.seconds for part in parts),
            phases | {"commit": now - begun},
        )

    def close(self) -> None:
        """Closes the store, unless it was given as a `Store`."""
        if self._owns:
            self._store.close()

    def __enter__(self) -> Self:
        self._store.__enter__()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def _save(self, inputs: Any, step: int) -> Saved:
        """Saves files as a shard, with the version before as base."""
        return self._store.save_shard(
            inputs,
            step=step,
            level=self._level,
            threads=self._threads,
            base="previous",
            anchor_every=self._anchor_every,
            alternatives=True,
        )

    def _last_step(self) -> int | None:
        """The last step of the store."""
        try:
            return self._store.find().step
        except NotFoundError:
            return None

    def __repr__(self) -> str:
        return f"<lmc.sync.Publisher to {self._store.location!r}>"


def _check_order(step: int | None, last: int | None) -> int:
    """The step to publish, by default the one after the last; raises unless followers will get it."""
    if last is None:
        return 0 if step is None else step
    if step is None:
        return last + 1
    if step == last:
        raise ExistsError(f"step {step} has a snapshot: publish another step")
    if step < last:
        raise UsageError(
            f"step {step} comes before the last one of the store, {last}, and no follower would get it: if the run"
            " was rewound, publish it to another store"
        )
    return step
