"""Copies of a model in other precisions, made by torch and gguf, cost next to nothing given the model."""

import subprocess
import sys
from pathlib import Path

import lmc
import pytest
import torch
from safetensors.torch import save_file

sys.path.insert(0, str(Path(__file__).parents[3] / "bench"))

import precisions

# Per mille of the copy: heads of blocks, indexes and the rows of attention heads are a notable part of small files.
MOST = 9
# Scales of small matrices, each with a scale of its own, need more columns than blocks have.
OTHERS = {"NVFP4": 200}


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> tuple[precisions.State, Path]:
    state = precisions.llama(2, 512, 1024, 4000, heads=8)
    path = tmp_path_factory.mktemp("model") / "model.safetensors"
    save_file(state, path)
    return state, path


def restored(path: Path, base: Path, folder: Path) -> int:
    """The size of a file compressed with a base; checks that it is restored."""
    lmc.compress_file(path, folder / "c.lmc", base=base, overwrite=True)
    lmc.decompress_file(folder / "c.lmc", folder / "back", base=base, overwrite=True)
    assert (folder / "back").read_bytes() == path.read_bytes()
    return (folder / "c.lmc").stat().st_size


def test_copies_cost_next_to_nothing(model, tmp_path):
    state, base = model
    sizes = {}
    for what, path in precisions.copies(state, tmp_path, heads=8):
        sizes[what] = 1000 * restored(path, base, tmp_path) / path.stat().st_size
    assert len(sizes) == 19
    assert not {what: size for what, size in sizes.items() if size > OTHERS.get(what, MOST)}, sizes


def attest(base: Path, copy: Path) -> int:
    command = [sys.executable, "-m", "lmc", "diff", "--attest", base, copy]
    return subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode


def test_copies_are_attested(model, tmp_path):
    state, base = model
    for what, path in precisions.copies(state, tmp_path, heads=8):
        # Of codes by tensor the scale that was used is not stored, only its rounded reciprocal: some codes are others.
        assert attest(base, path) == (what == "FP8 by tensor"), what
    data = bytearray((tmp_path / "copy.gguf").read_bytes())
    data[-100] ^= 1
    (tmp_path / "copy.gguf").write_bytes(data)
    assert attest(base, tmp_path / "copy.gguf") == 1


def test_forged_scales_are_not_attested(model, tmp_path):
    state, base = model
    name = "model.layers.0.mlp.up_proj.weight"
    # All codes follow from scales that are too large: zeros with signs.
    zeros = torch.zeros_like(state[name]).copysign(state[name])
    for what, quantise in precisions.QUANTISERS.items():
        made = {}
        for n, w in state.items():
            made.update(quantise(n, 1e6 * w if n == name else w) if precisions.is_matrix(w) else {n: w})
        dtype = made[name].dtype
        made[name] = precisions.e2m1(zeros.float()) if dtype == torch.uint8 else zeros.to(dtype)
        save_file(made, tmp_path / "forged.safetensors")
        assert attest(base, tmp_path / "forged.safetensors") == 1, what


def test_changed_weights_cost_what_changed(model, tmp_path):
    state, base = model
    random = torch.Generator().manual_seed(3)
    codes = {}
    for name, w in state.items():
        codes.update(precisions.fp8_block(name, w) if precisions.is_matrix(w) else {name: w})
    for name, q in codes.items():
        if q.dtype == torch.float8_e4m3fn:
            changed = torch.rand(q.shape, generator=random) < 0.01
            codes[name] = (q.view(torch.uint8) + changed.to(torch.uint8)).view(torch.float8_e4m3fn)
    save_file(codes, tmp_path / "c.safetensors")
    size = restored(tmp_path / "c.safetensors", base, tmp_path)
    assert size < 0.025 * (tmp_path / "c.safetensors").stat().st_size
