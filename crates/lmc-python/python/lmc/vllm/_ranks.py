"""Agreement of the workers of an engine."""

# mypy: disable-error-code="import-not-found"

from collections.abc import Callable
from typing import Any, TypeVar

import torch.distributed
from vllm.distributed import get_world_group

from lmc._errors import Error, UsageError
from lmc._lmc import Snapshot, Store

T = TypeVar("T")
At = int | str | None


def check_replicas(parallel_config: Any) -> None:
    """Raises `lmc.UsageError` for engines whose workers are in one group with those of their replicas.

    Each replica is updated by itself, and would wait for the others.
    """
    size = parallel_config.data_parallel_size
    if size > 1:
        raise UsageError(
            f"data_parallel_size is {size}: lmc takes mixtures of experts only with 1. Start several engines instead,"
            " and get each to a version by itself"
        )


def rank() -> int:
    """Which of the workers of an engine this one is."""
    number: int = get_world_group().rank_in_group
    return number


def gather(value: T) -> list[T]:
    """The values of all workers, in the order of their ranks."""
    group = get_world_group()
    if group.world_size == 1:
        return [value]
    values: list[Any] = [None] * group.world_size
    torch.distributed.all_gather_object(values, value, group=group.cpu_group)
    return values


def together(what: str, work: Callable[[], T]) -> T:
    """Does something on every worker. Where it fails on one, all raise, errors of lmc of the same class."""
    error: BaseException | None = None
    try:
        result = work()
    except BaseException as e:
        error = e
    errors = gather(None if error is None else (_class(error), f"{type(error).__name__}: {error}"))
    if error is not None:
        raise error
    for rank, failed in enumerate(errors):
        if failed is not None:
            raise failed[0](f"{what} failed on worker {rank}: {failed[1]}")
    return result


def _class(error: BaseException) -> type[Error]:
    """The class of an error, if every process has it."""
    return next((kind for kind in type(error).__mro__ if kind.__module__ == Error.__module__), Error)


def find(store: Store, at: At) -> Snapshot:
    """A snapshot, by default the newest one: the same for all workers. Raises `lmc.NotFoundError` if there is none."""
    snapshot = together("finding the version", lambda: store.find(at))
    steps = gather(snapshot.step)
    if min(steps) != max(steps):
        # A version appeared meanwhile. The earliest of those found is there for all.
        snapshot = together("finding the version", lambda: store.find(min(steps)))
    if len(set(gather(snapshot.id))) != 1:
        raise UsageError(f"step {snapshot.step} of {store.location!r} is not the same snapshot for all workers")
    return snapshot
