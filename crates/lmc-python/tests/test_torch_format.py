"""The version of the file format that is written for PyTorch: 1.0 has no grids."""

from __future__ import annotations

import fsspec
import lmc
import lmc.dcp
import lmc.torch
import pytest
import torch
import torch.distributed.checkpoint as dcp
from conftest import dequantised, has_grids

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.distributed is disabled")

STATE = {"weight": torch.from_numpy(dequantised())}


class Model(torch.nn.Module):
    def __init__(self, weight=None):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros_like(STATE["weight"]) if weight is None else weight)


def through_model(path, **options):
    lmc.torch.save_model(Model(STATE["weight"]), path, **options)
    model = Model()
    lmc.torch.load_model(model, path)
    return model.state_dict(), path.read_bytes()


def through_state(path, **options):
    lmc.torch.save_state(STATE, path, **options)
    return lmc.torch.load_state(path), path.read_bytes()


def through_file(path, **options):
    lmc.torch.save_file(STATE, path, **options)
    return lmc.torch.load_file(path), path.read_bytes()


def through_memory(path, **options):
    data = lmc.torch.save(STATE, **options)
    return lmc.torch.load(data), data


def save_and_load(path, **options):
    dcp.save(STATE, storage_writer=lmc.dcp.Writer(path, base=None, **options), no_dist=True)
    found = {"weight": torch.zeros_like(STATE["weight"])}
    dcp.load(found, storage_reader=lmc.dcp.Reader(path), no_dist=True)
    return found


def through_checkpoint(path, **options):
    return save_and_load(path, **options), b"".join(file.read_bytes() for file in path.glob("*.lmc"))


def through_bucket(path, **options):
    bucket = fsspec.filesystem("memory")
    try:
        found = save_and_load(f"memory://{path}/1", **options)
        return found, b"".join(bucket.cat(bucket.find(str(path))).values())
    finally:
        if bucket.exists(str(path)):
            bucket.rm(str(path), recursive=True)


WAYS = [through_file, through_memory, through_model, through_state, through_checkpoint, through_bucket]


@pytest.mark.parametrize("way", WAYS)
def test_the_version_is_a_choice(tmp_path, way):
    for name, options in {"newest": {}, "given": {"format": "1.1"}, "old": {"format": "1.0"}}.items():
        found, data = way(tmp_path / name, **options)
        assert torch.equal(found["weight"], STATE["weight"])
        assert has_grids(data) == (name != "old")
    with pytest.raises(lmc.UsageError, match="""^format=["']2["']: must be one of 1.0, 1.1$"""):
        way(tmp_path / "wrong", format="2")
    with pytest.raises(TypeError, match="'?format'?"):
        way(tmp_path / "wrong", format=1.0)
    assert not (tmp_path / "wrong").exists()
