"""The study's training: a run that is killed at any moment and started again ends as an uninterrupted one."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import lmc
import pytest
import torch

pytestmark = pytest.mark.long

STUDY = Path(__file__).parents[3] / "bench" / "study.py"
RUN = STUDY.with_name("study_run.py")
SMALL = (
    "--train --width 32 --layers 1 --context 16 --batch 2 --steps 13 --schedule 12 --warmup 2 --text 100000"
    " --threads 1 --checkpoint-every 4"
).split()
STEPS = {"pretrain": range(1, 14), "finetune": range(14, 18), "sparse": range(18, 22)}
STATES = [1, 2, 3, 4, 5, 7, 8, 9, 11, 12, 13, 16, 17, 20, 21]

#: Every process of a run starts with this. It counts the lines of study_run.py as they are executed, from when the
#: first step is trained, or from when its first checkpoint is saved, and dies at one of them.
KILLED = """
import atexit, os, signal, sys
lines, begun = 0, False
def traced(frame, event, _):
    global lines, begun
    if frame.f_code.co_filename != os.environ["TRACED"]:
        return None
    at = [event, frame.f_code.co_name] == os.environ["COUNT_FROM"].split()
    # The checkpoint of step 0 is saved before the training.
    begun |= at and frame.f_locals["step"] > 0
    if event == "line" and begun:
        lines += 1
        if lines == int(os.environ["KILL_AT"]):
            os.kill(os.getpid(), signal.SIGKILL)
    return traced
def count():
    with open(os.environ["COUNT"], "w") as file:
        file.write(str(lines))
sys.settrace(traced)
atexit.register(count)
"""


def train(
    folder: Path, *arguments: str, kill_at: int = -1, count_from: str = "call learning_rate"
) -> subprocess.CompletedProcess[str]:
    start = folder.parent / "start"
    start.mkdir(exist_ok=True)
    (start / "sitecustomize.py").write_text(KILLED)
    path = os.pathsep.join([str(start), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": path, "TRACED": str(RUN), "KILL_AT": str(kill_at)}
    environment |= {"COUNT": str(folder.parent / "count"), "COUNT_FROM": count_from}
    command = [sys.executable, str(STUDY), "--lmc", "unused", "--json", "unused", "--dir", str(folder), *SMALL]
    return subprocess.run([*command, *arguments], capture_output=True, text=True, env=environment)


def continued(done: subprocess.CompletedProcess[str]) -> int | None:
    """The step of the checkpoint that a process began with."""
    found = re.search(r"^continues after step (\d+)$", done.stdout, re.MULTILINE)
    return int(found[1]) if found else None


def contents(store: Path) -> dict[int, tuple[bytes, int]]:
    """What each step has, and the bytes it takes."""
    opened = lmc.Store(str(store))
    return {s.step: (opened.open_snapshot(s).read_file("model.safetensors"), s.new_size) for s in opened.snapshots()}


def logged(log: Path) -> list[dict[str, Any]]:
    """The lines of a log without times."""
    lines = map(json.loads, log.read_text().splitlines())
    return [{k: v for k, v in line.items() if not k.endswith("_seconds")} for line in lines]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An uninterrupted run, and how many lines of the script it executed."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    done = train(folder)
    assert done.returncode == 0, done.stderr
    for phase, steps in STEPS.items():
        assert [line["step"] for line in logged(folder / f"{phase}.jsonl")] == list(steps)
        assert list(contents(folder / phase)) == list(steps)
    assert list(contents(folder / "states")) == STATES
    return folder, int((folder.parent / "count").read_text())


def test_a_run_that_was_killed_goes_on(whole, tmp_path):
    unbroken, lines = whole
    broken, draw = tmp_path / "run", random.Random(1)
    assert lines > 300
    # Each process gets to a checkpoint, and not so far beyond it that one of them gets to the end: a sixth of the lines
    # is less than four steps.
    for part in range(3):
        died = train(broken, kill_at=draw.randrange(1, lines // 6), count_from="return save")
        assert died.returncode == -signal.SIGKILL, died.stderr
        assert (continued(died) or 0) >= 4 * part, died.stdout
        log = max(broken.glob("*.jsonl"), key=lambda path: path.stat().st_mtime_ns)
        with log.open("a") as file:
            file.write('{"step": 1')
    resumed = train(broken, "--threads", "2")
    assert resumed.returncode == 0, resumed.stderr
    assert 12 <= (continued(resumed) or 0) < 21, resumed.stdout
    # It goes on with the threads of the run, not with those asked for now.
    assert " 1 threads" in resumed.stdout
    for phase in STEPS:
        assert logged(broken / f"{phase}.jsonl") == logged(unbroken / f"{phase}.jsonl")
        assert contents(broken / phase) == contents(unbroken / phase)
    assert contents(broken / "states") == contents(unbroken / "states")
    # All is done: nothing is trained again.
    again = train(broken)
    assert again.returncode == 0 and continued(again) == 21
    assert logged(broken / "sparse.jsonl") == logged(unbroken / "sparse.jsonl")


def killed(folder: Path, lines: int) -> Path:
    """A run that was killed after its first checkpoints, with steps in the store that come after the last one."""
    died = train(folder, kill_at=lines // 2)
    assert died.returncode == -signal.SIGKILL, died.stderr
    return folder


def test_what_differs_is_refused(whole, tmp_path):
    _, lines = whole
    run = killed(tmp_path / "run", lines)
    other = train(run, "--seed", "2")
    assert other.returncode == 1 and "seed 1, not 2" in other.stderr
    text = run / "pretrain.text"
    kept = text.read_bytes()
    text.write_bytes(kept[:-1] + b"?" if kept[-1:] != b"?" else kept[:-1] + b"!")
    other = train(run)
    assert other.returncode == 1 and "is not the text" in other.stderr
    text.write_bytes(kept)
    # As if training were not deterministic.
    checkpoint = run / "checkpoint.pt"
    found = torch.load(checkpoint, weights_only=True)
    newest = max(s.step for phase in STEPS if (run / phase).exists() for s in lmc.Store(str(run / phase)).snapshots())
    assert found["step"] < newest, "no step is trained again"
    found["tensors"]["master.norm.weight"] *= 1.5
    torch.save(found, checkpoint)
    other = train(run)
    assert other.returncode == 1 and f"step {found['step'] + 1}, trained again" in other.stderr
