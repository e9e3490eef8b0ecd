"""`lmc unpack` beside PyTorch: it writes what torch loads, or names what it cannot write and writes nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import lmc
import lmc.dcp
import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file, save_file

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*torch.distributed is disabled"),
    pytest.mark.filterwarnings("ignore:.*support is experimental"),
    pytest.mark.filterwarnings("ignore:.*quantize"),
]

FORMATS = ("zip", "legacy", "dcp")
DTYPES = sorted({dtype for dtype in vars(torch).values() if isinstance(dtype, torch.dtype)}, key=str)


def is_held(dtype: torch.dtype, folder: Path) -> bool:
    """Whether safetensors writes tensors of a dtype."""
    try:
        save_file({"w": torch.empty((2, 4), dtype=dtype)}, folder / "x")
    except (KeyError, RuntimeError):
        return False
    return True


def tensor(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    n = int(np.prod(shape)) * dtype.itemsize
    data = torch.arange(n, dtype=torch.uint8)
    return (data % 2 if dtype == torch.bool else data).view(dtype).reshape(shape)


def write(state: Any, folder: Path, form: str) -> Path:
    match form:
        case "zip":
            torch.save(state, folder / "state.pt")
        case "legacy":
            torch.save(state, folder / "state.pt", _use_new_zipfile_serialization=False)
        case "dcp":
            dcp.save(state, checkpoint_id=folder / "state")
            return folder / "state"
    return folder / "state.pt"


def unpack(file: Path, out: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "lmc", "unpack", str(file), "-o", str(out), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def unpacked(out: Path) -> dict[str, torch.Tensor]:
    (file,) = out.glob("*.safetensors")
    return load_file(file)


def same(found: torch.Tensor, expected: torch.Tensor) -> bool:
    flat = [t.contiguous().reshape(-1) for t in (found, expected)]
    alike = found.dtype == expected.dtype and found.shape == expected.shape
    return alike and (not len(flat[0]) or torch.equal(*(t.view(torch.uint8) for t in flat)))


@pytest.mark.parametrize("form", FORMATS)
def test_tensors_of_every_dtype(tmp_path: Path, form: str) -> None:
    held = [dtype for dtype in DTYPES if is_held(dtype, tmp_path)]
    assert len(held) >= 20 and torch.float4_e2m1fn_x2 in held and torch.complex64 in held
    state = {f"{dtype}.plain": tensor(dtype, 2, 4) for dtype in held}
    state |= {f"{dtype}.empty": tensor(dtype, 0, 4) for dtype in held}
    if form != "dcp":
        state |= {f"{dtype}.turned": tensor(dtype, 2, 3).t() for dtype in held}
        state |= {f"{dtype}.tied": state[f"{dtype}.plain"] for dtype in held}
        state |= {f"{dtype}.part": tensor(dtype, 5, 4)[1:3] for dtype in held}
    file = write(state, tmp_path, form)
    done = unpack(file, tmp_path / "out")
    assert done.returncode == 0, done.stderr
    found = unpacked(tmp_path / "out")
    assert found.keys() == state.keys()
    assert [name for name in state if not same(found[name], state[name])] == []
    if form != "dcp":
        lmc.compress_file(file, f"{file}.lmc")
        assert unpack(Path(f"{file}.lmc"), tmp_path / "again").returncode == 0
        assert (tmp_path / "again/state.safetensors").read_bytes() == (tmp_path / "out/state.safetensors").read_bytes()


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("kind", ["complex128", "complex32"])
def test_dtypes_that_safetensors_lacks(tmp_path: Path, form: str, kind: str) -> None:
    state = {"w": torch.ones(4, 5).to(getattr(torch, kind)), "other": torch.ones(2)}
    file = write(state, tmp_path, form)
    done = unpack(file, tmp_path / "out")
    assert done.returncode == 1 and '"w"' in done.stderr and kind in done.stderr
    assert not (tmp_path / "out").exists()
    assert unpack(file, tmp_path / "out", "--prefix", "o").returncode == 0


@pytest.mark.parametrize("form", FORMATS[:2])
@pytest.mark.parametrize(
    "value",
    [
        np.ones((3, 4), np.float32),
        np.ones((3, 4), np.float32)[:, :2],
        torch.arange(4.0).untyped_storage(),
        torch.eye(3).to_sparse(),
        torch.empty(3, device="meta"),
        torch.ones(3, dtype=torch.complex64).conj(),
    ],
    ids=["numpy", "view", "storage", "sparse", "meta", "conjugate"],
)
def test_what_is_no_plain_tensor(tmp_path: Path, form: str, value: Any) -> None:
    file = write({"model": {"w": value}, "other": torch.ones(2)}, tmp_path, form)
    done = unpack(file, tmp_path / "out")
    assert done.returncode == 1 and '"model.w"' in done.stderr, done.stderr
    assert not (tmp_path / "out").exists()
    done = unpack(file, tmp_path / "out", "--prefix", "o")
    assert done.returncode == 0, done.stderr


def test_checkpoints_of_lmc(tmp_path: Path) -> None:
    """They are exported first; pairs of FP4 are written as safetensors does, and what it lacks is refused."""
    state = {"fp4": tensor(torch.float4_e2m1fn_x2, 3, 4), "w": torch.ones(3)}
    for step, more in ((1, {}), (2, {"c": torch.ones(2, dtype=torch.complex128)})):
        dcp.save(state | more, storage_writer=lmc.dcp.Writer(tmp_path / "a", step=step))
        lmc.dcp.export(tmp_path / "a", tmp_path / f"plain-{step}", step=step)
    assert unpack(tmp_path / "plain-1", tmp_path / "st").returncode == 0
    found = unpacked(tmp_path / "st")
    assert found.keys() == state.keys() and all(same(found[name], state[name]) for name in state)
    done = unpack(tmp_path / "plain-2", tmp_path / "none")
    assert done.returncode == 1 and '"c" is of type torch.complex128' in done.stderr, done.stderr
    assert not (tmp_path / "none").exists()
