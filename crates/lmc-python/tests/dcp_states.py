"""States that the tests of checkpoints of one process save and load."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lmc.dcp
import torch
import torch.distributed.checkpoint as dcp


def model(seed: int) -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    first = {"w": torch.randn(300, 400, generator=torch.Generator().manual_seed(0)), "b": torch.ones(7)}
    return {name: t + 1e-6 * seed * torch.randn(t.shape, generator=draw) for name, t in first.items()}


def state(seed: int) -> dict[str, Any]:
    weights = model(seed)
    return {"weights": weights, "half": {n: t.bfloat16() for n, t in weights.items()}, "step": seed}


def save(store: Path | str, step: int, what: dict[str, Any] | None = None, **options: Any) -> None:
    """Saves a state, by default that of the step."""
    writer = lmc.dcp.Writer(store, step=step, **{"threads": 1} | options)
    dcp.save(state(step) if what is None else what, storage_writer=writer, no_dist=True)


def load(store: Path | str, step: int | str | None = None, into: dict[str, Any] | None = None) -> dict[str, Any]:
    found = state(99) if into is None else into
    dcp.load(found, storage_reader=lmc.dcp.Reader(store, step=step), no_dist=True)
    return found
