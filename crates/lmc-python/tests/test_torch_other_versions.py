"""Files of another version with PyTorch: `lmc.torch`, `lmc.dcp` and `lmc.hf` refuse them, and write nothing."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lmc
import lmc.dcp
import pytest
import torch
import torch.distributed.checkpoint as dcp
from conftest import other_version
from lmc.hf import Callback, restore
from lmc.torch import load_file, load_state, safe_open, save_file
from torch.distributed.checkpoint.api import CheckpointException

SENTENCE = "reads version 1: use the lmc that wrote it, or a newer one"
PLAIN, DELTA, BASE = "step1.safetensors.lmc", "step2.safetensors.lmc", "step1.safetensors"

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.distributed is disabled")


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """Files, checkpoints and a store that say that they have version 2."""
    folder = tmp_path / "old"
    folder.mkdir()
    tensors = [torch.arange(1500, dtype=torch.bfloat16) + step for step in (1, 2)]
    for step, tensor in enumerate(tensors, start=1):
        base = folder / PLAIN if step > 1 else None
        save_file({"w": tensor}, folder / f"step{step}.safetensors.lmc", base=base)
        dcp.save({"w": tensor}, storage_writer=lmc.dcp.Writer(folder / "dcp", step=step), no_dist=True)
    lmc.decompress_file(folder / PLAIN, folder / BASE)
    (folder / "hf" / "checkpoint-3").mkdir(parents=True)
    shutil.copy(folder / BASE, folder / "hf" / "checkpoint-3")
    lmc.Store.create(folder / "hf" / "lmc-store").save_files([folder / BASE], step=1)
    other_version(folder)
    return folder


def contents(folder: Path) -> dict[Path, bytes]:
    return {p.relative_to(folder): p.read_bytes() if p.is_file() else b"" for p in folder.rglob("*")}


@pytest.fixture
def unchanged(old: Path) -> Iterator[Path]:
    """The same copy; the test fails if anything in it changes."""
    before = contents(old)
    yield old
    assert contents(old) == before


def refused(function: Callable[..., object], *arguments: object, **options: Any) -> None:
    with pytest.raises(lmc.UnsupportedError, match=SENTENCE):
        function(*arguments, **options)


def test_files(unchanged: Path) -> None:
    for path in (unchanged / PLAIN, unchanged / DELTA):
        refused(load_file, path)
        refused(load_file, path, base=unchanged / BASE)
        refused(load_state, path)
        refused(safe_open, path, framework="pt")
        refused(save_file, {"w": torch.zeros(1500)}, unchanged / "out", base=path)


def test_a_store_of_checkpoints_is_not_used(unchanged: Path) -> None:
    tensor = torch.full((1500,), 7.0, dtype=torch.bfloat16)
    for step in (None, 1, 2):
        with pytest.raises(CheckpointException, match=SENTENCE):
            dcp.load({"w": tensor}, storage_reader=lmc.dcp.Reader(unchanged / "dcp", step=step), no_dist=True)
        refused(lmc.dcp.export, unchanged / "dcp", unchanged / "out", step=step)
    assert bool((tensor == 7).all())
    with pytest.raises(CheckpointException, match=SENTENCE):
        dcp.save({"w": tensor}, storage_writer=lmc.dcp.Writer(unchanged / "dcp", step=3), no_dist=True)


def test_a_store_of_a_trainer_is_not_used(unchanged: Path, caplog: pytest.LogCaptureFixture) -> None:
    refused(restore, unchanged / "hf", 1)
    (unchanged / "hf" / "checkpoint-4").mkdir()
    shutil.copy(unchanged / BASE, unchanged / "hf" / "checkpoint-4")
    callback = Callback()
    state = SimpleNamespace(is_world_process_zero=True, best_model_checkpoint=None, global_step=4)
    with caplog.at_level(logging.WARNING):
        args: Any = SimpleNamespace(output_dir=str(unchanged / "hf"), distributed_state=None)
        callback.on_save(args, state, None)  # type: ignore[arg-type]
        callback.wait()
    [record] = caplog.records
    assert SENTENCE in record.getMessage() and not record.exc_info
    shutil.rmtree(unchanged / "hf" / "checkpoint-4")
