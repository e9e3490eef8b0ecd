"""The tests of `test_nothing_lost`, with tensors of torch."""

import os

import lmc
import lmc.torch
import pytest
import torch
from changing import N, written


def master():
    return torch.randn(N, generator=torch.Generator().manual_seed(0)) * 0.02


class Model(torch.nn.Module):
    def __init__(self, seed):
        super().__init__()
        w = torch.randn(1 << 18, generator=torch.Generator().manual_seed(0))
        self.w = torch.nn.Parameter(w * (1 + seed * 1e-4))


# Every function of lmc.torch that has a base and writes a file.
WRITERS = {
    "save_file": lambda seed, dst, **o: lmc.torch.save_file(dict(Model(seed).named_parameters()), dst, **o),
    "save_state": lambda seed, dst, **o: lmc.torch.save_state({"model": Model(seed).state_dict(), "step": 1}, dst, **o),
    "save_model": lambda seed, dst, **o: lmc.torch.save_model(Model(seed), dst, **o),
}


@pytest.mark.parametrize("writer", WRITERS)
class TestDestinationIsABase:
    def refused(self, folder, writer, dst, base):
        before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        with pytest.raises(lmc.UsageError) as e:
            WRITERS[writer](9, dst, base=base)
        assert str(dst) in str(e.value) and "latest.lmc" in str(e.value) and "base" in str(e.value)
        assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before

    def test_by_any_name(self, tmp_path, writer):
        path = tmp_path / "latest.lmc"
        WRITERS[writer](1, path)
        (tmp_path / "dir").mkdir()
        (tmp_path / "latest.lmc-soft").symlink_to(path)
        os.link(path, tmp_path / "latest.lmc-hard")
        ways = [path, str(path), tmp_path / "dir" / ".." / "latest.lmc", f"{tmp_path}/./latest.lmc"]
        ways += [tmp_path / "latest.lmc-soft", tmp_path / "latest.lmc-hard"]
        for way in ways:
            self.refused(tmp_path, writer, way, path)
            self.refused(tmp_path, writer, path, way)

    def test_the_base_of_a_base(self, tmp_path, writer):
        path = tmp_path / "latest.lmc"
        WRITERS[writer](1, path)
        WRITERS[writer](2, tmp_path / "delta.lmc", base=path)
        self.refused(tmp_path, writer, path, [tmp_path / "delta.lmc", path])
        with lmc.open(tmp_path / "delta.lmc", base=path) as opened:
            self.refused(tmp_path, writer, path, opened)

    def test_another_file_is_written(self, tmp_path, writer):
        WRITERS[writer](1, tmp_path / "1.lmc")
        for _ in range(2):
            WRITERS[writer](2, tmp_path / "2.lmc", base=tmp_path / "1.lmc")
        with lmc.open(tmp_path / "2.lmc", base=tmp_path / "1.lmc") as f:
            assert len(f.read_range(0, f.size)) == f.size


class TestMemoryThatChanges:
    """Each byte is copied as it was at some time, and the file decodes."""

    @pytest.fixture
    def trained(self):
        weights = master()
        half = weights.bfloat16()

        def train(draw):
            weights.add_(1e-4 * draw.random())
            half.copy_(weights)

        return {"master": weights, "half": half}, train

    def test_save_file(self, tmp_path, trained):
        tensors, train = trained
        for i in range(5):
            with written(train):
                lmc.torch.save_file(tensors, tmp_path / f"{i}.lmc")
                file = lmc.torch.save(tensors)
            for found in (lmc.torch.load_file(tmp_path / f"{i}.lmc"), lmc.torch.load(file)):
                assert {name: t.shape for name, t in found.items()} == {name: t.shape for name, t in tensors.items()}
                assert all(torch.isfinite(t).all() for t in found.values())

    def test_save_state(self, tmp_path, trained):
        tensors, train = trained
        for i in range(5):
            with written(train):
                lmc.torch.save_state({"model": tensors, "step": i}, tmp_path / f"{i}.lmc")
            found = lmc.torch.load_state(tmp_path / f"{i}.lmc")
            assert found["step"] == i and all(torch.isfinite(t).all() for t in found["model"].values())
