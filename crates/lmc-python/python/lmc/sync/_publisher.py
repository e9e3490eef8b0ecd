"""Publishing the weights of a run."""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from lmc._errors import ExistsError, NotFoundError, UsageError
from lmc._lmc import Store
from lmc.sync._libraries import library_of

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
    """Publishes versions of a model to a store, a directory or a bucket, which is created if missing.

    A version is a snapshot of the store: it appears when it is complete and durable, and what followers have is its
    base. Tensors that did not change take no space; every `anchor_every`-th version of one that does stands alone, so
    that a follower that begins late reads no more than that many. The weights of the last version stay in memory, up to
    `cache_size` bytes, so that the next one need not read them.
    """

    def __init__(
        self,
        store: Path,
        *,
        level: str = "fast",
        anchor_every: int = 16,
        cache_size: int = 16 << 30,
        threads: int | None = None,
    ) -> None:
        self._store = Store.create(store, cache="memory", cache_size=cache_size)
        self._level = level
        self._anchor_every = anchor_every
        self._threads = threads

    @property
    def store(self) -> Store:
        """The store."""
        return self._store

    def publish(
        self,
        weights: Mapping[str, Any] | Path,
        *,
        step: int | None = None,
        metadata: dict[str, str] | None = None,
    ) -> Published:
        """Publishes tensors by name, or a file, or a directory of files, as a version.

        Tensors of torch, on any device, or arrays of numpy are saved as `model.safetensors`. Of tensors of torch that
        share memory one is saved. They must not be written to meanwhile; files that change while they are read are not
        published. `step` is the version's number, by default the one after the last.

        Raises `lmc.ExistsError` when another publisher has published this step, `lmc.UsageError` when it comes before
        the last one, `lmc.StoreError` when the store cannot be reached: then followers have what they had.
        """
        start = time.monotonic()
        inputs: Any = [weights] if isinstance(weights, str | os.PathLike) else _tensors(weights)
        step = self._check_order(step)
        saved = self._store.save_shard(
            inputs,
            step=step,
            level=self._level,
            threads=self._threads,
            base="previous",
            anchor_every=self._anchor_every,
        )
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

    def _check_order(self, step: int | None) -> int:
        """The step to publish, by default the one after the last."""
        try:
            last = self._store.find().step
        except NotFoundError:
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

    def __repr__(self) -> str:
        return f"<lmc.sync.Publisher to {self._store.location!r}>"


def _tensors(weights: Mapping[str, Any]) -> dict[str, Any]:
    return {_FILE: library_of(weights).given(weights)}
