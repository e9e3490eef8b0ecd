"""The example of reinforcement learning: it learns, and a generator that is killed makes no difference."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import lmc
import pytest

pytestmark = pytest.mark.long

EXAMPLE = Path(__file__).parents[3] / "examples" / "rl.py"
STEPS, KILLED = 30, 7
SMALL = ["--steps", str(STEPS), "--digits", "3"]
#: Seconds after which a run has not merely been slow.
HANGS = 600

#: Every process of a run starts with this: a follower that does not write what changed.
BROKEN = """
import lmc.sync
commit = lmc.sync.Follower.commit
def forgets(self, update):
    if update.step != 2:
        commit(self, update)
    else:
        self._step = update.step
lmc.sync.Follower.commit = forgets
"""


def train(folder: Path, *arguments: str, start: str = "") -> subprocess.CompletedProcess[str]:
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(start)
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, str(EXAMPLE), "--dir", str(folder / "run"), "--log", str(folder / "log"), *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    # A generator that hangs shall not hang the tests, too.
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=HANGS)


def steps(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "log").read_text().splitlines()]


def test_it_learns_and_a_generator_that_is_killed_makes_no_difference(tmp_path):
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    done = train(killed, *SMALL, "--kill", str(KILLED))
    assert done.returncode == 0, done.stderr
    log = steps(killed)
    assert [step["step"] for step in log] == list(range(1, STEPS + 1))

    # Of three digits that are guessed 0.1 are right. Seeds have made no difference of more than 0.02.
    first, last = (statistics.fmean(step["reward"] for step in part) for part in (log[:5], log[-5:]))
    assert last > 0.25 and last > 2 * first

    # The second process begins where the first one was killed, or up to two batches later: it may have made those.
    processes = [step["generator"] for step in log]
    assert len(set(processes)) == 2
    assert KILLED <= processes.index(processes[-1]) <= KILLED + 2
    assert f"process {processes[0]} was killed" in done.stdout

    # Each batch is of the version before the last one, with the weights that were published as that.
    published = [step["published"] for step in log]
    store = lmc.Store(killed / "run" / "store")
    for step in log:
        assert step["version"] == max(0, step["step"] - 2)
        assert step["sha256"] == store.find(step["version"]).metadata["sha256"]
        assert step["version"] == 0 or step["sha256"] == published[step["version"] - 1]
    assert len({step["sha256"] for step in log}) == STEPS - 1

    done = train(whole, *SMALL, "--kill", "0")
    assert done.returncode == 0, done.stderr
    assert len({step["generator"] for step in steps(whole)}) == 1
    for key in ("reward", "version", "sha256", "published"):
        assert [step[key] for step in steps(whole)] == [step[key] for step in log]


def test_wrong_weights_end_the_run(tmp_path):
    done = train(tmp_path / "broken", "--steps", "6", "--digits", "2", "--kill", "0", start=BROKEN)
    assert done.returncode == 1
    assert "version 2 has the hash" in done.stderr
    assert "the process that makes batch 4 ended" in done.stderr
    # None of them was used.
    assert [step["step"] for step in steps(tmp_path / "broken")] == [1, 2, 3]
