"""States that the tests of checkpoints of one process save and load."""

from __future__ import annotations

from pathlib import Path

import lmc.dcp
import torch
import torch.distributed.checkpoint as dcp


def model(seed: int) -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    first = {"w": torch.randn(300, 200, generator=torch.Generator().manual_seed(0)), "b": torch.ones(7)}
    return {name: t + 1e-4 * seed * torch.randn(t.shape, generator=draw) for name, t in first.items()}


def state(seed: int) -> dict[str, object]:
    weights = model(seed)
    return {"weights": weights, "half": {n: t.bfloat16() for n, t in weights.items()}, "step": seed}


def save(path: Path | str, seed: int, **options: object) -> None:
    dcp.save(state(seed), storage_writer=lmc.dcp.Writer(path, threads=1, **options), no_dist=True)


def load(path: Path | str, into: dict[str, object] | None = None) -> dict[str, object]:
    found = state(99) if into is None else into
    dcp.load(found, storage_reader=lmc.dcp.Reader(path), no_dist=True)
    return found
