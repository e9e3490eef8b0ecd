"""Older checkpoints of a Hugging Face `Trainer`, kept in a store, where each takes only the space of its changes.

>>> from lmc.hf import Callback
>>> trainer = Trainer(..., callbacks=[Callback()])                            # doctest: +SKIP

The newest checkpoint stays as it is, so that `Trainer.train(resume_from_checkpoint=True)` works as always; so do the
one that was saved last, if the run went back to an earlier step, and the best one, if the trainer keeps track of it.
All others move, in the background, to a store (`OUTPUT_DIR/lmc-store`). Any of them is restored by

    lmc snapshot restore OUTPUT_DIR/lmc-store -o OUTPUT_DIR/checkpoint-500 --at 500

or by `lmc.hf.restore(OUTPUT_DIR, 500)`.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

import lmc
from lmc._options import check_level, check_threads

__all__ = ["Callback", "restore"]

logger = logging.getLogger(__name__)

STORE = "lmc-store"
_CHECKPOINT = re.compile(r"checkpoint-(\d+)")
#: Files are compared in chunks of this many bytes.
_PIECE = 16 << 20


class Callback(TrainerCallback):
    """Moves all but the newest checkpoint of a `Trainer`, and the one saved last, to a store, in the background.

    A checkpoint is deleted from its directory once its copy in the store was read back and verified. If that fails, it
    stays, a warning is logged, and training continues; the next save tries again. A save while checkpoints are moved
    leaves its own work to the next one, or to the end of the training, which waits for it. A checkpoint with links or
    empty directories stays, too, as a store cannot hold them; directories of files, as FSDP and DeepSpeed make them,
    are moved. Leave `save_total_limit` unset: it would delete checkpoints before they are stored.

    Args:
        store: a directory or the URL of a bucket, such as `s3://BUCKET/PREFIX`; `None` for `lmc-store` in the trainer's
            output directory. It is created if missing.
        keep: how many checkpoints to keep in the store, newest first; `None` for all.
        level: `"fast"`, `"default"` or `"max"`.
        threads: threads that compress; `None` for one per core. Training may need them.
    """

    def __init__(
        self,
        store: str | os.PathLike[str] | None = None,
        *,
        keep: int | None = None,
        level: str = "default",
        threads: int | None = 1,
    ) -> None:
        if keep is not None and keep < 1:
            raise lmc.UsageError(f"keep must be a number of checkpoints, or None for all, not {keep}")
        check_level(level)
        check_threads(threads)
        self._location = store
        self._keep = keep
        self._options: dict[str, Any] = {"level": level, "threads": threads}
        self._worker: ThreadPoolExecutor | None = None
        self._pending: Future[None] | None = None
        # The arguments of `_move` for a save that found it at work.
        self._left: tuple[Path, int, str | None] | None = None

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Starts to move all checkpoints but the newest."""
        if not state.is_world_process_zero or args.output_dir is None:
            return
        best = None if state.best_model_checkpoint is None else Path(state.best_model_checkpoint).name
        self._left = Path(args.output_dir), state.global_step, best
        if self._pending is None or self._pending.done():
            self._start()

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Moves what the last saves left, and waits for it."""
        self._start()
        self.wait()

    def wait(self) -> None:
        """Waits for moves in progress, and stops the background thread."""
        if self._worker is not None:
            self._worker.shutdown()
            self._worker = None
        self._pending = None

    def _start(self) -> None:
        if self._left is None:
            return
        if self._worker is None:
            self._worker = ThreadPoolExecutor(1, thread_name_prefix="lmc")
        self._pending = self._worker.submit(self._move, *self._left)
        self._left = None

    def _move(self, output: Path, saved: int, best: str | None) -> None:
        """Moves all checkpoints but the newest, the best, and that of the step `saved`."""
        try:
            folders = ((_CHECKPOINT.fullmatch(path.name), path) for path in output.iterdir() if path.is_dir())
            found = sorted((int(match[1]), path) for match, path in folders if match)
            # The newest is another one than the one just saved if the run went back to an earlier step.
            older = [(step, path) for step, path in found[:-1] if step != saved and path.name != best]
            if not older:
                return
            for gone in output.glob(_gone("checkpoint-*")):
                shutil.rmtree(gone, ignore_errors=True)  # leftovers of an interrupted move
            store = _open(output / STORE if self._location is None else self._location)
            for step, path in older:
                try:
                    _move(store, step, path, self._options)
                except (lmc.ExistsError, lmc.UnsupportedError) as e:
                    # Of another run, or of this one before it went back; or it holds more than files.
                    logger.warning("lmc: %s", e)
            if self._keep is not None:
                # Later ones belong to a run that went back to an earlier step, and are left to the user.
                steps = sorted(s.step for s in store.snapshots())
                kept = [s for s in steps if s <= saved][-self._keep :] + [s for s in steps if s > saved]
                store.prune(keep_steps=kept, **self._options)
                store.gc()
        except Exception as e:  # training continues after any error
            logger.warning(
                "lmc: older checkpoints stay as they are: %s", e, exc_info=not isinstance(e, lmc.Error | OSError)
            )


def restore(
    output_dir: str | os.PathLike[str],
    step: int,
    *,
    store: str | os.PathLike[str] | None = None,
    threads: int | None = None,
) -> Path:
    """Restores a checkpoint.

    Args:
        output_dir: the output directory of the trainer.
        step: the step of the checkpoint.
        store: as it was given to `Callback`.
        threads: threads that decompress; `None` for one per core.

    Returns:
        the directory `checkpoint-STEP` in the output directory, from which training can be resumed.

    Raises:
        lmc.NotFoundError: the store or the step does not exist.
        lmc.ExistsError: the directory exists already.
    """
    output = Path(output_dir)
    target = output / f"checkpoint-{step}"
    if target.exists():
        raise lmc.ExistsError(f"{target} exists already")
    opened = lmc.Store(output / STORE if store is None else store)
    # A trainer takes any directory of that name for a complete checkpoint.
    partial = output / f".{target.name}.restoring"
    shutil.rmtree(partial, ignore_errors=True)
    opened.restore(partial, step, threads=threads)
    partial.rename(target)
    return target


def _open(location: str | os.PathLike[str]) -> lmc.Store:
    try:
        return lmc.Store(location)
    except lmc.NotFoundError:
        return lmc.Store.create(location)


def _move(store: lmc.Store, step: int, path: Path, options: dict[str, Any]) -> None:
    """Moves one checkpoint to the store, saved with these options.

    Raises `lmc.UnsupportedError` if it could not be restored unchanged.
    """
    files = _files(path)
    if not files:
        return
    try:
        store.save_files(files, step=step, **options)
    except lmc.ExistsError:
        pass  # An interrupted move stored it before: the stored files are compared below.
    snapshot = store.open_snapshot(step, threads=options["threads"])
    stored = {f.name: f.nbytes for f in snapshot.files}
    if stored.keys() != files.keys() or not all(
        _same(snapshot, name, stored[name], file) for name, file in files.items()
    ):
        raise lmc.ExistsError(f"the store has another checkpoint of step {step}; {path} stays")
    # Renamed first: a half-deleted directory must not be taken for a checkpoint.
    gone = path.with_name(_gone(path.name))
    path.rename(gone)
    shutil.rmtree(gone)


def _files(checkpoint: Path) -> dict[str, Path]:
    """The files of a checkpoint, by their paths in it.

    Raises `lmc.UnsupportedError` if it holds anything but files and non-empty directories.
    """
    files: dict[str, Path] = {}
    for path in sorted(checkpoint.rglob("*")):
        if path.is_symlink():
            what = "a link"
        elif path.is_file():
            files[path.relative_to(checkpoint).as_posix()] = path
            continue
        elif not path.is_dir():
            what = "not a regular file"
        elif any(path.iterdir()):
            continue
        else:
            what = "an empty directory"
        raise lmc.UnsupportedError(f"{path} is {what}, and a store keeps only files: {checkpoint} stays as it is")
    return files


def _gone(name: str) -> str:
    return f".{name}.stored"


def _same(snapshot: lmc.store.SnapshotReader, name: str, stored: int, path: Path) -> bool:
    """Whether a file of a snapshot, of `stored` bytes, equals that on disk."""
    size = path.stat().st_size
    if stored != size:
        return False
    read = bytearray(min(size, _PIECE))
    with open(path, "rb") as file:
        for offset in range(0, size, _PIECE):
            piece = file.read(_PIECE)
            here = memoryview(read)[: len(piece)]
            snapshot.read_range_into(name, offset, here)
            if here != piece:
                return False
    return True
