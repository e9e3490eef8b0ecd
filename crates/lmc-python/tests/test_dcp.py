"""Checkpoints of `torch.distributed.checkpoint`: saved by some ranks and loaded by others, whole and damaged."""

from __future__ import annotations

import shutil
from pathlib import Path

import dcp_ranks as ranks
import lmc
import lmc.dcp
import pytest
import torch
from conftest import thinned
from safetensors.torch import load_file

CHAIN = 5


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory):
    """Checkpoints of a run, saved in some mode by `n` ranks: the first whole, others as deltas of the one before."""
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


@pytest.mark.parametrize("count", [2, 3])
def test_what_ranks_saved_without_lmc_is_unpacked(tmp_path, count):
    ranks.run(count, ranks.save_plain, str(tmp_path), folder=tmp_path)
    assert len(list((tmp_path / "plain").glob("*.distcp"))) == count
    done = ranks.process(ranks.command, "unpack", "plain", "-o", "out", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    expected = ranks.tensors(torch.load(tmp_path / "expected-plain.pt"))
    assert "columns" in expected and "optimizer.state.layers.0.weight.exp_avg" in expected
    assert ranks.equal(load_file(tmp_path / "out" / "model.safetensors"), expected)


def test_ranks_that_would_do_without_collectives(tmp_path):
    ranks.run(2, ranks.without_collectives, str(tmp_path / "store"), folder=tmp_path)
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("same", [True, False])
def test_groups_that_save_the_same_step(tmp_path, same):
    ranks.run(3, ranks.savers, str(tmp_path / "store"), 6, same, folder=tmp_path)
    assert [s.step for s in lmc.Store(tmp_path / "store").snapshots()] == list(range(6))


def test_a_rank_that_is_killed(tmp_path):
    with pytest.raises(RuntimeError, match="rank 1: died of SIGKILL"):
        ranks.run(2, ranks.save_and_die, str(tmp_path), "sync", 2, {}, folder=tmp_path)
    assert [s.step for s in lmc.Store(tmp_path / "store").snapshots()] == [0]
    ranks.run(2, ranks.load_all, str(tmp_path), [0], folder=tmp_path)
    # The whole run goes on in its place: what it saved before is saved already.
    ranks.run(2, ranks.save_run, str(tmp_path), "sync", 2, {}, folder=tmp_path)
    ranks.run(1, ranks.load_all, str(tmp_path), [0, 1], folder=tmp_path)


@pytest.mark.parametrize(("mode", "counts"), thinned(ranks.MODES, [(1, 1), (2, 1), (2, 3), (4, 2)]))
class TestRanks:
    def test_whole_and_deltas(self, runs, tmp_path, mode, counts):
        saved, loaded = counts
        folder = runs(mode, saved)
        store = lmc.Store(folder / "store")
        assert [len(s.shards) for s in store.snapshots()] == [1] * CHAIN
        assert [store.cost(step).longest_chain for step in range(3)] == [1, 2, 3]
        files = [f.name for f in store.open_snapshot().files]
        assert files == [*(f"rank-{rank}.safetensors" for rank in range(saved)), ".metadata.json"]
        ranks.run(loaded, ranks.load_all, str(folder), list(range(CHAIN)), folder=tmp_path)

    def test_older_checkpoints_are_pruned(self, runs, tmp_path, mode, counts):
        saved, loaded = counts
        shutil.copytree(runs(mode, saved), tmp_path / "run")
        store = lmc.Store(tmp_path / "run" / "store")
        assert store.prune(keep_last=1).pruned == list(range(CHAIN - 1))
        ranks.run(loaded, ranks.load_all, str(tmp_path / "run"), [CHAIN - 1], folder=tmp_path)

    def test_missing_base(self, runs, tmp_path, mode, counts):
        saved, loaded = counts
        shutil.copytree(runs(mode, saved), tmp_path / "run")
        for path in first(tmp_path / "run" / "store"):
            path.unlink()
        where = str(tmp_path / "run" / "store"), 2, ["data/"]
        ranks.run(loaded, ranks.load_fails, *where, folder=tmp_path)

    def test_damaged_base(self, runs, tmp_path, mode, counts):
        saved, loaded = counts
        shutil.copytree(runs(mode, saved), tmp_path / "run")
        for path in first(tmp_path / "run" / "store"):
            damaged = bytearray(path.read_bytes())
            damaged[::1000] = bytes(b ^ 1 for b in damaged[::1000])
            path.write_bytes(damaged)
        where = str(tmp_path / "run" / "store"), 2, ["is not what was written there"]
        ranks.run(loaded, ranks.load_fails, *where, folder=tmp_path)

    def test_exported(self, runs, tmp_path, mode, counts):
        saved, loaded = counts
        folder = runs(mode, saved)
        for step in (0, CHAIN - 1):
            lmc.dcp.export(folder / "store", tmp_path / f"plain-{step}", step=step)
            plain = str(folder), str(tmp_path / f"plain-{step}"), step
            ranks.run(loaded, ranks.load_plain, *plain, folder=tmp_path)
            done = ranks.process(ranks.command, "unpack", f"plain-{step}", "-o", f"out-{step}", "-q", folder=tmp_path)
            assert (done.returncode, done.stderr) == (0, "")
            expected = ranks.tensors(torch.load(folder / f"expected-{step}.pt"))
            assert ranks.equal(load_file(tmp_path / f"out-{step}" / "model.safetensors"), expected)


def first(store: Path) -> list[Path]:
    """The data objects that the first save wrote."""
    published = min(path.stat().st_mtime_ns for path in (store / "snapshots").rglob("*.json"))
    return [p for p in (store / "data").rglob("*") if p.is_file() and p.stat().st_mtime_ns <= published]
