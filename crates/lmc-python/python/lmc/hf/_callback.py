"""The callback of a `Trainer` that keeps its older checkpoints in a store."""

from __future__ import annotations

import json
import logging
import math
import os
import re
import secrets
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
#: The key of what a trainer's state says of the run.
_NAME = "lmc.hf.Callback"
_CHECKPOINT = re.compile(r"checkpoint-(\d+)")
#: Files are compared in chunks of this many bytes.
_PIECE = 16 << 20


class Callback(TrainerCallback):
    """Copies each checkpoint of a `Trainer` to a store, in the background, and removes all from their directory but the
    newest, the one saved last, and the best.

    A checkpoint is deleted from its directory once its copy in the store was read back and verified. If that fails, it
    stays, a warning is logged, and training continues; the next save tries again. A save while checkpoints are moved
    leaves its own work to the next one, or to the end of the training, which waits for it. A checkpoint with links or
    empty directories stays, too, as a store cannot hold them; directories of files, as FSDP and DeepSpeed make them,
    are moved.

    A store is one run's. A training that begins anew, or goes on in another output directory, is another run: it does
    not begin if the store has snapshots of another one. Each snapshot has the `epoch`, the last numbers that the
    trainer logged, as `loss`, those of an evaluation at its step, and the id of its `run`.

    Args:
        store: a directory or the URL of a bucket, such as `s3://BUCKET/PREFIX`; `None` for `lmc-store` in the trainer's
            output directory. It is created if missing.
        run: the id of the run; `None` for that of the checkpoint that the training resumes from, or a new one.
        keep: how many checkpoints to keep in the store, newest first; `None` for all. What goes is deleted after the
            store's grace period, by later saves.
        grace_seconds: for a store that is created: how long what no checkpoint needs stays. A save may take half of it.
        level: `"fast"`, `"default"` or `"max"`.
        threads: threads that compress; `None` for one per core. Training may need them.

    Raises:
        lmc.UsageError: when the training begins: the store is another run's, or `save_total_limit` is set.
    """

    def __init__(
        self,
        store: str | os.PathLike[str] | None = None,
        *,
        run: str | None = None,
        keep: int | None = None,
        grace_seconds: int = 1800,
        level: str = "default",
        threads: int | None = 1,
    ) -> None:
        if keep is not None and keep < 1:
            raise lmc.UsageError(f"keep must be a number of checkpoints, or None for all, not {keep}")
        if grace_seconds < 60:
            raise lmc.UsageError(f"grace_seconds must be at least 60, not {grace_seconds}")
        check_level(level)
        check_threads(threads)
        self._location = store
        self._given_run = run
        self._keep = keep
        self._grace_seconds = grace_seconds
        self._options: dict[str, Any] = {"level": level, "threads": threads}
        self._run = ""
        # The steps of this run that the store has; of these, those that this process saved or compared.
        self._stored: set[int] = set()
        self._saved: set[int] = set()
        self._worker: ThreadPoolExecutor | None = None
        self._pending: Future[None] | None = None
        # What a save found while others were moved.
        self._left: _Found | None = None

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Checks that the store is this run's, and that the trainer leaves its checkpoints to it."""
        if args.save_total_limit is not None and args.save_total_limit > 0:
            raise lmc.UsageError(
                f"save_total_limit={args.save_total_limit} would delete checkpoints before lmc.hf.Callback stores them:"
                f" leave it unset; Callback(keep={args.save_total_limit}) limits those in the store"
            )
        if not state.is_world_process_zero or args.output_dir is None:
            return
        output = os.path.realpath(args.output_dir)
        # A dict, by name, in spite of its type.
        callbacks: Any = state.stateful_callbacks
        mark = _mark(callbacks)
        # A copy of the checkpoints in another directory is another run, unless the store went there with them.
        goes_on = self._location is None or mark.get("output") == output
        self._run = self._given_run or (mark.get("run") if goes_on else None) or secrets.token_hex(16)
        self._saved = set()
        self._stored = self._check(Path(args.output_dir), anew=state.global_step == 0)
        # The trainer saves it with its state.
        callbacks[_NAME] = {"run": self._run, "output": output}

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Starts to copy and to move checkpoints."""
        if args.distributed_state is not None:
            # Others may still be writing theirs.
            args.distributed_state.wait_for_everyone()
        if not state.is_world_process_zero or args.output_dir is None:
            return
        best = None if state.best_model_checkpoint is None else Path(state.best_model_checkpoint).name
        try:
            self._left = _Found(Path(args.output_dir), state.global_step, best)
        except OSError as e:
            logger.warning("lmc: checkpoints stay as they are: %s", e)
            return
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

    def _place(self, output: Path) -> str | os.PathLike[str]:
        return output / STORE if self._location is None else self._location

    def _check(self, output: Path, *, anew: bool) -> set[int]:
        """The steps that the store has, which must be of this run, and none if that begins anew."""
        place = self._place(output)
        try:
            snapshots = lmc.Store(place).snapshots()
        except lmc.NotFoundError:
            return set()
        for snapshot in snapshots:
            of = snapshot.metadata.get("run")
            if of == self._run and not anew:
                continue
            whose = "that no Trainer saved" if of is None else f"of the run {of}"
            raise lmc.UsageError(
                f"{place} has snapshots {whose}, such as step {snapshot.step}, and "
                + ("this training begins a new run" if anew else f"this is the run {self._run}")
                + ": give it a store of its own with lmc.hf.Callback(store=...)"
                + (f", or resume that run with resume_from_checkpoint=lmc.hf.restore({str(output)!r})" if anew else "")
                + ("" if of is None or anew else f", or say with run={of!r} that it is the same")
            )
        return {snapshot.step for snapshot in snapshots}

    def _start(self) -> None:
        if self._left is None:
            return
        if self._worker is None:
            self._worker = ThreadPoolExecutor(1, thread_name_prefix="lmc")
        self._pending = self._worker.submit(self._move, self._left)
        self._left = None

    def _move(self, found: _Found) -> None:
        """Moves all checkpoints that were found, but those that stay."""
        try:
            for gone in found.output.glob(_gone("checkpoint-*")):
                shutil.rmtree(gone, ignore_errors=True)  # leftovers of an interrupted move
            if not found.older and not found.copied:
                return
            store = lmc.Store.create(self._place(found.output), grace_seconds=self._grace_seconds)
            for step, path in sorted(found.older + found.copied):
                try:
                    self._store(store, step, path, remove=(step, path) in found.older)
                except (lmc.ExistsError, lmc.UnsupportedError) as e:
                    # Of another run, or of this one before it went back; or it holds more than files.
                    logger.warning("lmc: %s", e)
            if self._keep is not None:
                self._prune(store, self._keep, found.saved)
        except Exception as e:  # training continues after any error
            logger.warning("lmc: checkpoints stay as they are: %s", e, exc_info=not isinstance(e, lmc.Error | OSError))

    def _store(self, store: lmc.Store, step: int, path: Path, *, remove: bool) -> None:
        """Copies a checkpoint to the store, and removes it from its directory.

        Raises `lmc.UnsupportedError` if it could not be restored unchanged, `lmc.ExistsError` if it is another run's,
        or the store has another one of its step.
        """
        files = _files(path)
        if not files:
            return
        state = _trainer_state(path)
        run = _mark(state.get("stateful_callbacks")).get("run", self._run)
        if run != self._run:
            raise lmc.ExistsError(f"{path} is of the run {run}, not of {self._run}, and stays as it is")
        compare = remove
        if step not in self._saved:
            try:
                store.save_files(files, step=step, metadata=_numbers(state, step) | {"run": run}, **self._options)
            except lmc.ExistsError:
                # An interrupted move stored it before, or it is of this run before it went back.
                compare, of = True, store.find(step).metadata.get("run")
                if of != run:
                    why = f"the store has a checkpoint of step {step} of the run {of}; {path} stays"
                    raise lmc.ExistsError(why) from None
        if compare:
            _compare(store, step, path, files, self._options["threads"])
        self._saved.add(step)
        self._stored.add(step)
        if remove:
            # Renamed first: a half-deleted directory must not be taken for a checkpoint.
            gone = path.with_name(_gone(path.name))
            path.rename(gone)
            shutil.rmtree(gone)

    def _prune(self, store: lmc.Store, keep: int, saved: int) -> None:
        """Ends the snapshots of this run, up to the step `saved`, that are not among the last ones."""
        # Later ones belong to a run that went back to an earlier step, and are left to the user.
        older = sorted(step for step in self._stored if step <= saved)[:-keep]
        drop = set(older) - set(store.tags().values())
        if drop:
            try:
                store.prune(drop=sorted(drop), **self._options)
            except lmc.NotFoundError:
                # Somebody else ended one of them.
                drop -= {snapshot.step for snapshot in store.snapshots()}
            self._stored -= drop
        store.gc()


class _Found:
    """The checkpoints that are there when one was saved."""

    def __init__(self, output: Path, saved: int, best: str | None) -> None:
        folders = ((_CHECKPOINT.fullmatch(path.name), path) for path in output.iterdir() if path.is_dir())
        found = sorted((int(match[1]), path) for match, path in folders if match)
        # The newest is another one than the one just saved if the run went back to an earlier step.
        stays = [(step, path) for step, path in found if step == saved or path.name == best] + found[-1:]
        self.output = output
        self.saved = saved
        self.older = [one for one in found if one not in stays]
        #: What stays, and is copied. (Later ones are of the run before it went back.)
        self.copied = [(step, path) for step, path in set(stays) if step <= saved]


def restore(
    output_dir: str | os.PathLike[str],
    step: int | None = None,
    *,
    store: str | os.PathLike[str] | None = None,
    threads: int | None = None,
) -> Path:
    """Restores a checkpoint, to resume from it: `trainer.train(resume_from_checkpoint=lmc.hf.restore("output"))`.

    Args:
        output_dir: the output directory of the trainer.
        step: the step of the checkpoint; `None` for the last one.
        store: as it was given to `Callback`.
        threads: threads that decompress; `None` for one per core.

    Returns:
        the directory `checkpoint-STEP` in the output directory, from which training can be resumed. One that is there
        already, with the same files, stays as it is.

    Raises:
        lmc.NotFoundError: the store or the step does not exist.
        lmc.ExistsError: the directory exists already, with other files.
    """
    output = Path(output_dir)
    opened = lmc.Store(output / STORE if store is None else store)
    step = opened.find().step if step is None else step
    target = output / f"checkpoint-{step}"
    if target.exists():
        _compare(opened, step, target, _files(target), threads)
        return target
    # A trainer takes any directory of that name for a complete checkpoint.
    partial = output / f".{target.name}.restoring"
    shutil.rmtree(partial, ignore_errors=True)
    opened.restore(partial, step, threads=threads)
    partial.rename(target)
    return target


def _compare(store: lmc.Store, step: int, path: Path, files: dict[str, Path], threads: int | None) -> None:
    """Raises `lmc.ExistsError` unless the snapshot of a step has these files of a checkpoint."""
    snapshot = store.open_snapshot(step, threads=threads)
    stored = {f.name: f.nbytes for f in snapshot.files}
    if stored.keys() != files.keys() or not all(
        _same(snapshot, name, stored[name], file) for name, file in files.items()
    ):
        raise lmc.ExistsError(f"the store has another checkpoint of step {step}; {path} stays")


def _trainer_state(checkpoint: Path) -> dict[str, Any]:
    """What the trainer saved of its own state, if it did."""
    # Here, as that module imports much more than loading a model needs.
    from transformers.trainer import TRAINER_STATE_NAME

    try:
        state = json.loads((checkpoint / TRAINER_STATE_NAME).read_bytes())
    except (OSError, ValueError):
        return {}
    return state if isinstance(state, dict) else {}


def _mark(callbacks: Any) -> dict[str, str]:
    """What a trainer's state says of the run."""
    mark = callbacks.get(_NAME) if isinstance(callbacks, dict) else None
    texts = mark.items() if isinstance(mark, dict) else ()
    return {key: value for key, value in texts if isinstance(value, str)}


def _numbers(state: dict[str, Any], step: int) -> dict[str, float]:
    """The last numbers that a trainer logged, until it saved its state at a step; those of evaluations only if they
    were made at that step."""
    log = state.get("log_history")
    entries = [e for e in log if isinstance(e, dict)] if isinstance(log, list) else []
    found: dict[str, Any] = {}
    for entry in entries:
        is_of_step = entry.get("step") == step
        found |= {key: value for key, value in entry.items() if is_of_step or not key.startswith("eval_")}
    found["epoch"] = state.get("epoch")
    found.pop("step", None)
    return {key: _number(value) for key, value in found.items() if type(value) in (int, float) and math.isfinite(value)}


def _number(value: float) -> float:
    # Larger integers are not exact for every reader.
    return value if abs(value) <= 1 << 53 else float(value)


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
