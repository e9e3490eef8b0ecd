"""Checkpoints of Lightning's `Trainer` in a store, where each takes only the space of its changes.

>>> trainer = Trainer(plugins=[lmc.lightning.CheckpointIO()])                 # doctest: +SKIP

`ModelCheckpoint`, `fit(ckpt_path=)` and the rest work as before. At the path of a checkpoint is a small file that says
where it is stored.
"""

# mypy: disable-error-code="import-not-found,misc,no-any-unimported"

import json
import math
import os
from typing import Any, Final

from lightning.fabric.plugins import TorchCheckpointIO
from lightning.fabric.utilities.cloud_io import get_filesystem

from lmc._errors import DamagedError, ExistsError, NotFoundError
from lmc._lmc import Store
from lmc._options import check_level, check_threads

__all__ = ["CheckpointIO"]

STORE: Final = "lmc-store"
_KEY: Final = "lmc.lightning.CheckpointIO"
# The longest file that says where a checkpoint is stored.
_LONGEST: Final = 1 << 16


class CheckpointIO(TorchCheckpointIO):
    """Saves checkpoints to a store, loads those and any other, and removes them from the store.

    The step of a snapshot is the checkpoint's `global_step`, or the next one that is free if there is one already, as
    of `save_last=True`. Its metadata have the epoch, the step, and what each `ModelCheckpoint` monitors. Give it to
    Lightning's `AsyncCheckpointIO` to save in the background.

    Args:
        store: a directory or the URL of a bucket, such as `s3://BUCKET/PREFIX`; `None` for `lmc-store` beside the
            checkpoints. It is created if missing.
        grace_seconds: for a store that is created: how long what no checkpoint needs stays. A save may take half of it.
        level: `"fast"`, `"default"` or `"max"`.
        threads: threads that compress; `None` for one per core.
    """

    def __init__(
        self,
        store: str | os.PathLike[str] | None = None,
        *,
        grace_seconds: int = 1800,
        level: str = "default",
        threads: int | None = None,
    ) -> None:
        check_level(level)
        check_threads(threads)
        place = STORE if store is None else os.fspath(store)
        # A checkpoint is found from any directory.
        self._place = place if store is None or "://" in place else os.path.abspath(place)
        self._grace_seconds = grace_seconds
        self._options: dict[str, Any] = {"level": level, "threads": threads}
        # By location.
        self._stores: dict[str, Store] = {}

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        """Saves a checkpoint, and removes the one that was at this path.

        Raises `lmc.UsageError` for what a state cannot have, and `TypeError` for `storage_options`.
        """
        if storage_options is not None:
            raise TypeError("lmc.lightning.CheckpointIO has no storage_options")
        path, step, metadata = str(path), int(checkpoint.get("global_step", 0)), _numbers(checkpoint)
        store = self._store(path, self._place, create=True)
        while True:
            try:
                store.save(checkpoint, step=step, metadata=metadata, **self._options)
                break
            except ExistsError:
                step += 1
        # What a link leads to is another checkpoint.
        before = None if os.path.islink(path) else _pointer(path)
        files = get_filesystem(path)
        files.makedirs(os.path.dirname(path), exist_ok=True)
        with files.open(f"{path}.part", "w") as file:
            json.dump({_KEY: {"store": self._place, "step": step}}, file)
        files.mv(f"{path}.part", path)
        self._drop(path, before)

    def load_checkpoint(self, path: Any, map_location: Any = None, weights_only: bool | None = None) -> dict[str, Any]:
        """Loads a checkpoint, also one that Lightning itself saved. Of a store's, nothing is executed, and
        `map_location` is a device.

        Raises `FileNotFoundError`, `lmc.NotFoundError` when the store has lost it, and `lmc.DamagedError`.
        """
        pointer = _pointer(str(path))
        if pointer is None:
            options = {"map_location": map_location, "weights_only": weights_only}
            given = {key: value for key, value in options.items() if value is not None}
            found: dict[str, Any] = super().load_checkpoint(path, **given)
            return found
        where, step = pointer
        found = self._store(str(path), where).load(step, device=map_location)
        return found

    def remove_checkpoint(self, path: Any) -> None:
        """Removes a checkpoint. What no other needs is deleted after the store's grace period, by later calls."""
        pointer = _pointer(str(path))
        super().remove_checkpoint(path)
        self._drop(str(path), pointer)

    def _store(self, path: str, where: str, *, create: bool = False) -> Store:
        location = f"{os.path.dirname(path) or '.'}/{STORE}" if where == STORE else where
        if location not in self._stores:
            made = Store.create(location, grace_seconds=self._grace_seconds) if create else Store(location)
            self._stores[location] = made
        return self._stores[location]

    def _drop(self, path: str, pointer: tuple[str, int] | None) -> None:
        """Removes the snapshot of a checkpoint that is gone, unless it is the only one, which a store keeps."""
        if pointer is None:
            return
        where, step = pointer
        store = self._store(path, where)
        if len(store.snapshots(last=2)) < 2:
            return
        try:
            store.prune(drop=[step], **self._options)
        except NotFoundError:
            pass  # somebody else has done it
        store.gc()


def _pointer(path: str) -> tuple[str, int] | None:
    """Location and step that a file names; `None` if it is another file, or none."""
    files = get_filesystem(path)
    if not files.isfile(path):
        return None
    with files.open(path, "rb") as file:
        text = file.read(_LONGEST)
    if _KEY.encode() not in text[: len(_KEY) + 4]:
        return None
    try:
        found = json.loads(text)[_KEY]
        where, step = found["store"], found["step"]
    except (ValueError, TypeError, KeyError, RecursionError) as e:
        raise DamagedError(f"{path} does not say where its checkpoint is stored: {e}") from e
    if not isinstance(where, str) or type(step) is not int or step < 0:
        raise DamagedError(f"{path} does not say where its checkpoint is stored: {found}")
    return where, step


def _numbers(checkpoint: dict[str, Any]) -> dict[str, float]:
    """Numbers that say how good a checkpoint is."""
    found: dict[str, float] = {key: int(checkpoint[key]) for key in ("epoch", "global_step") if key in checkpoint}
    for state in checkpoint.get("callbacks", {}).values():
        if isinstance(state, dict) and state.get("monitor") and state.get("current_score") is not None:
            found[state["monitor"]] = float(state["current_score"])
    return {key: value for key, value in found.items() if math.isfinite(value)}
