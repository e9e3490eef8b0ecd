"""Checkpoints of `torch.distributed.checkpoint`: saved by some ranks and loaded by others, whole and damaged."""

from __future__ import annotations

import shutil
from pathlib import Path

import dcp_ranks as ranks
import lmc.dcp
import pytest
import torch
import torch.distributed.checkpoint as dcp
from conftest import thinned
from safetensors.torch import load_file

CHAIN = 5


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory):
    """Snapshots of a run, saved in some mode by `n` ranks: the first whole, the others as deltas of the one before."""
    made: dict[tuple[str, int], Path] = {}

    def run(mode: str, count: int) -> Path:
        if (mode, count) not in made:
            folder = tmp_path_factory.mktemp(f"{mode}-{count}")
            # Processes of `async_save` are spawned, which is not possible from a forked process.
            how = "spawn" if mode == "process" else "forkserver"
            ranks.run(count, ranks.save_run, str(folder), mode, CHAIN, {}, start_method=how, folder=folder)
            made[mode, count] = folder
        return made[mode, count]

    return run


def own_file(folder: Path, step: int) -> Path:
    """The file that a rank wrote for a step, and for no earlier one."""
    before = {p.name for p in (folder / f"step-{step - 1}").glob("*.lmc")} if step else set()
    return min(p for p in (folder / f"step-{step}").glob("*.lmc") if p.name not in before)


def test_ranks_that_do_without_collectives(tmp_path):
    ranks.run(2, ranks.apart, str(tmp_path), folder=tmp_path)


@pytest.mark.parametrize("count", [2, 3])
def test_what_ranks_saved_without_lmc_is_unpacked(tmp_path, count):
    ranks.run(count, ranks.save_plain, str(tmp_path), folder=tmp_path)
    assert len(list((tmp_path / "plain").glob("*.distcp"))) == count
    done = ranks.process(ranks.command, "unpack", "plain", "-o", "out", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    expected = ranks.tensors(torch.load(tmp_path / "expected-plain.pt"))
    assert "columns" in expected and "optimizer.state.layers.0.weight.exp_avg" in expected
    assert ranks.equal(load_file(tmp_path / "out" / "model.safetensors"), expected)


@pytest.mark.filterwarnings("ignore:.*torch.distributed is disabled")
def test_ranks_that_find_the_same_base(tmp_path):
    first = {"w": torch.randn(300, 300), "s": torch.zeros(4, dtype=torch.uint8)}
    dcp.save(first, storage_writer=lmc.dcp.Writer(tmp_path / "step-0", threads=1), no_dist=True)
    (base,) = (p.name for p in (tmp_path / "step-0").glob("*.lmc"))
    ranks.run(2, ranks.crossing, str(tmp_path), first, folder=tmp_path)
    names = {p.name for p in (tmp_path / "step-1").glob("*.lmc")}
    assert base in names and len(names) == 3


@pytest.mark.parametrize(("mode", "counts"), thinned(ranks.MODES, [(1, 1), (2, 1), (2, 3), (4, 2)]))
class TestRanks:
    def test_whole_and_deltas(self, runs, tmp_path, mode, counts):
        saved, loaded = counts
        folder = runs(mode, saved)
        files = [len(list((folder / f"step-{step}").glob("*.lmc"))) for step in range(CHAIN)]
        assert files == [saved * (step + 1) for step in range(CHAIN)], "every snapshot is made from the one before it"
        ranks.run(loaded, ranks.load_all, str(folder), list(range(CHAIN)), folder=tmp_path)

    def test_older_snapshots_can_be_deleted(self, runs, tmp_path, mode, counts):
        saved, loaded = counts
        folder = tmp_path / "run"
        shutil.copytree(runs(mode, saved), folder)
        for step in range(CHAIN - 1):
            shutil.rmtree(folder / f"step-{step}")
        ranks.run(loaded, ranks.load_all, str(folder), [CHAIN - 1], folder=tmp_path)

    def test_missing_base(self, runs, tmp_path, mode, counts):
        saved, loaded = counts
        folder = tmp_path / "run"
        shutil.copytree(runs(mode, saved), folder)
        base = own_file(folder, 0).name
        (folder / f"step-{CHAIN - 1}" / base).unlink()
        ranks.run(loaded, ranks.load_fails, str(folder / f"step-{CHAIN - 1}"), [base], folder=tmp_path)

    def test_unpacked_by_the_program(self, runs, tmp_path, mode, counts):
        folder = runs(mode, counts[0])
        for step in (0, CHAIN - 1):
            checkpoint, out = str(folder / f"step-{step}"), f"out-{step}"
            done = ranks.process(ranks.command, "unpack", "-q", checkpoint, "-o", out, folder=tmp_path)
            assert (done.returncode, done.stderr) == (0, "")
            expected = ranks.tensors(torch.load(folder / f"expected-{step}.pt"))
            assert ranks.equal(load_file(tmp_path / out / "model.safetensors"), expected)

    def test_damaged_base(self, runs, tmp_path, mode, counts):
        saved, loaded = counts
        folder = tmp_path / "run"
        shutil.copytree(runs(mode, saved), folder)
        base = folder / f"step-{CHAIN - 1}" / own_file(folder, 0).name
        damaged = bytearray(base.read_bytes())
        damaged[len(damaged) // 2] ^= 1
        base.unlink()
        base.write_bytes(damaged)
        ranks.run(loaded, ranks.load_fails, str(base.parent), ["checksum of a block"], folder=tmp_path)
