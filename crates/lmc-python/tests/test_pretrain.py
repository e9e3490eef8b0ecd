"""The training example: its results do not depend on being killed and resumed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import lmc
import pytest
from conftest import thinned

pytestmark = pytest.mark.long

EXAMPLE = Path(__file__).parents[3] / "examples" / "pretrain.py"
SMALL = ["--steps", "18", "--every", "4", "--width", "64", "--layers", "1", "--batch", "4", "--text", "200000"]

#: Every process of a run starts with this. One rank dies when its part of the third snapshot is written, and not
#: published; if another process writes it, that one dies as well.
KILLED = """
import multiprocessing, os, signal
import lmc
real, saves = lmc.Store, 0
class Dying:
    def __init__(self, store):
        self.store = store
    def __getattr__(self, name):
        return getattr(self.store, name)
    def save_shard(self, inputs, **options):
        global saves
        saved = self.store.save_shard(inputs, **options)
        saves += ".metadata.json" not in inputs
        if saves == 3 and os.environ.get("RANK", "0") == os.environ["KILL_RANK"]:
            if multiprocessing.parent_process() is not None:
                os.kill(os.getppid(), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
        return saved
class Store:
    def __new__(cls, *arguments, **options):
        return real(*arguments, **options)
    @staticmethod
    def create(*arguments, **options):
        return Dying(real.create(*arguments, **options))
lmc.Store = Store
"""


def train(ranks: int, *arguments: str, kill: Path | None = None, rank: int = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable]
    if ranks > 1:
        command += ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "KILL_RANK": str(rank)}
    if kill is not None:
        (kill / "sitecustomize.py").write_text(KILLED)
        environment["PYTHONPATH"] = os.pathsep.join([str(kill), os.environ.get("PYTHONPATH", "")])
    return subprocess.run([*command, str(EXAMPLE), *arguments], capture_output=True, text=True, env=environment)


def losses(log: Path) -> dict[int, str]:
    """By step; of one that was computed twice, the later."""
    return {line["step"]: line["loss"] for line in map(json.loads, log.read_text().splitlines())}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Losses of an uninterrupted run with this number of ranks. How it saves makes no difference to them."""
    made: dict[int, dict[int, str]] = {}

    def get(ranks: int) -> dict[int, str]:
        if ranks not in made:
            run = tmp_path_factory.mktemp("run") / "whole"
            done = train(ranks, "--dir", str(run), "--losses", f"{run}.log", *SMALL)
            assert done.returncode == 0, done.stderr
            made[ranks] = losses(Path(f"{run}.log"))
            assert len(made[ranks]) == 18
        return made[ranks]

    return get


@pytest.mark.parametrize(("of", "background"), thinned([(1, 0), (2, 1)], ["none", "process", "thread"]))
def test_a_run_that_was_killed_goes_on(whole, tmp_path, of, background):
    ranks, killed = of
    broken = tmp_path / "broken"
    options = [*SMALL, "--async", background]
    killed_at = tmp_path / "killed"
    killed_at.mkdir()
    died = train(ranks, "--dir", str(broken), "--losses", str(broken) + ".log", *options, kill=killed_at, rank=killed)
    assert died.returncode == (1 if ranks > 1 else -signal.SIGKILL), died.stderr
    store = lmc.Store(broken)
    assert [snapshot.step for snapshot in store.snapshots()] == [4, 8]
    assert len(list((broken / "shards").iterdir())) > sum(len(snapshot.shards) for snapshot in store.snapshots())
    resumed = train(ranks, "--dir", str(broken), "--losses", str(broken) + ".log", "--resume", *options)
    assert resumed.returncode == 0, resumed.stderr
    assert "resuming after step 8" in resumed.stdout
    assert losses(tmp_path / "broken.log") == whole(ranks)


def test_a_run_that_was_killed_goes_on_with_other_numbers_of_ranks(whole, tmp_path):
    killed_at, log = tmp_path / "killed", tmp_path / "log"
    killed_at.mkdir()
    options = ["--dir", str(tmp_path / "run"), "--losses", str(log), *SMALL, "--async", "thread", "--keep-last", "2"]
    died = train(2, *options, kill=killed_at, rank=1)
    assert died.returncode == 1, died.stderr
    for ranks, after, until in ((4, 8, 14), (1, 12, 18)):
        resumed = train(ranks, *options, "--resume", "--steps", str(until))
        assert resumed.returncode == 0, resumed.stderr
        assert f"{ranks} ranks, resuming after step {after}" in resumed.stdout
    assert [snapshot.step for snapshot in lmc.Store(tmp_path / "run").snapshots()] == [12, 16]
    # Sums over ranks are rounded in another order.
    found, expected = ({step: float.fromhex(loss) for step, loss in all_.items()} for all_ in (losses(log), whole(2)))
    assert found == pytest.approx(expected, abs=0.01)
