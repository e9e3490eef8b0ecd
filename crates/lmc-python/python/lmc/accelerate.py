"""States of Hugging Face's Accelerate in a store, where each takes only the space of its changes.

>>> lmc.accelerate.save_state(accelerator, "runs/7", step=1000)               # doctest: +SKIP
>>> lmc.accelerate.load_state(accelerator, "runs/7")                          # doctest: +SKIP
1000
"""

# mypy: disable-error-code="import-untyped"

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from accelerate import Accelerator
from accelerate.utils import broadcast_object_list

from lmc._errors import UsageError
from lmc._lmc import Store

__all__ = ["load_state", "save_state"]

T = TypeVar("T")


def save_state(
    accelerator: Accelerator,
    store: Store | str | os.PathLike[str],
    *,
    step: int,
    metadata: dict[str, Any] | None = None,
    level: str = "default",
    threads: int | None = None,
) -> None:
    """Saves what `accelerator.save_state` saves as the snapshot of a step. All processes call it.

    `store` is an open one, a directory or the URL of a bucket; it is created if it is missing. The other arguments are
    those of `Store.save_files`. Files are written to a directory of the accelerator's `project_dir`, or of the system
    for temporary files, which all processes must see, and are removed then.

    Raises what `Store.save_files` does, such as `lmc.ExistsError` for a step that the store has, in all processes, and
    `lmc.UsageError` with `automatic_checkpoint_naming`.
    """
    if accelerator.project_configuration.automatic_checkpoint_naming:
        raise UsageError("automatic_checkpoint_naming saves to other directories: leave it unset, the store has all")

    def stored() -> None:
        files = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
        opened = store if isinstance(store, Store) else Store.create(store)
        opened.save_files(files, step=step, metadata=metadata, level=level, threads=threads)

    with _folder(accelerator) as folder:
        accelerator.save_state(str(folder))
        accelerator.wait_for_everyone()
        _in_the_first(accelerator, stored)


def load_state(
    accelerator: Accelerator,
    store: Store | str | os.PathLike[str],
    at: int | str | None = None,
    *,
    threads: int | None = None,
) -> int:
    """Loads what `save_state` saved, as `accelerator.load_state` does, and returns its step. All processes call it.

    `at` is a step or a tag; `None` is the last step. Raises what `Store.restore` does, such as `lmc.NotFoundError`, in
    all processes.
    """

    def restored() -> int:
        opened = store if isinstance(store, Store) else Store(store)
        step = opened.find(at).step
        opened.restore(folder, step, threads=threads)
        return step

    with _folder(accelerator) as folder:
        step = _in_the_first(accelerator, restored)
        accelerator.load_state(str(folder))
    return step


@contextmanager
def _folder(accelerator: Accelerator) -> Iterator[Path]:
    """A directory of all processes."""

    def made() -> str:
        if accelerator.project_dir is not None:
            os.makedirs(accelerator.project_dir, exist_ok=True)
        return tempfile.mkdtemp(prefix="lmc-", dir=accelerator.project_dir)

    folder = Path(_in_the_first(accelerator, made))
    try:
        yield folder
    finally:
        accelerator.wait_for_everyone()
        if accelerator.is_main_process:
            shutil.rmtree(folder, ignore_errors=True)


def _in_the_first(accelerator: Accelerator, work: Callable[[], T]) -> T:
    """The result of work that the first process does, or its exception, in all processes."""
    done: list[Any] = [None, None]
    if accelerator.is_main_process:
        try:
            done = [work(), None]
        except Exception as e:
            done = [None, e]
    broadcast_object_list(done)
    if done[1] is not None:
        raise done[1]
    result: T = done[0]
    return result
