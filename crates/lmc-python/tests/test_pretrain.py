"""The example that trains: what it computes does not depend on being killed and resumed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[3] / "examples" / "pretrain.py"
SMALL = ["--steps", "18", "--every", "4", "--width", "64", "--layers", "1", "--batch", "4", "--text", "200000"]

#: Runs the example, and kills one rank in the middle of writing its part of the third snapshot.
KILLED = """
import os, runpy, signal, sys
import lmc
write, saves = lmc.compress_tensors_file, 0
def dying(tensors, path, **options):
    global saves
    saves += 1
    if saves == 3 and os.environ.get("RANK", "0") == os.environ["KILL_RANK"]:
        with open(path, "wb") as half:
            half.write(lmc.compress_tensors(tensors)[:1000])
        os.kill(os.getpid(), signal.SIGKILL)
    return write(tensors, path, **options)
lmc.compress_tensors_file = dying
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def train(ranks: int, *arguments: str, kill: Path | None = None, rank: int = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable]
    if ranks > 1:
        command += ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    if kill is not None:
        script = kill / "killed.py"
        script.write_text(KILLED)
        command.append(str(script))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "KILL_RANK": str(rank)}
    return subprocess.run([*command, str(EXAMPLE), *arguments], capture_output=True, text=True, env=environment)


def losses(log: Path) -> dict[int, str]:
    """By step; of one that was computed twice, the later."""
    return {line["step"]: line["loss"] for line in map(json.loads, log.read_text().splitlines())}


@pytest.mark.parametrize("background", ["none", "thread", "process"])
@pytest.mark.parametrize(("ranks", "killed"), [(1, 0), (2, 1)])
def test_a_run_that_was_killed_goes_on(tmp_path, ranks, killed, background):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    options = [*SMALL, "--async", background]
    done = train(ranks, "--dir", str(whole), "--losses", str(whole) + ".log", *options)
    assert done.returncode == 0, done.stderr
    assert len(losses(tmp_path / "whole.log")) == 18
    if background == "process":
        # The process that saves is another, in which nothing is patched: the whole run is killed at some step.
        command = ["--dir", str(broken), "--losses", str(broken) + ".log", *options, "--steps", "11"]
        assert train(ranks, *command).returncode == 0
    else:
        died = train(
            ranks, "--dir", str(broken), "--losses", str(broken) + ".log", *options, kill=tmp_path, rank=killed
        )
        assert died.returncode in (-signal.SIGKILL, 1)
        assert not (broken / "step-000012" / ".metadata").exists()
    assert (broken / "step-000008" / ".metadata").exists()
    resumed = train(ranks, "--dir", str(broken), "--losses", str(broken) + ".log", "--resume", *options)
    assert resumed.returncode == 0, resumed.stderr
    assert "resuming after step 8" in resumed.stdout
    assert losses(tmp_path / "broken.log") == losses(tmp_path / "whole.log")
