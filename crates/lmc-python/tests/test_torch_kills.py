"""Trainings of every framework that are killed at random moments, and go on from a checkpoint with the same losses."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

KILLS = Path(__file__).parents[3] / "bench" / "kills.py"


@pytest.mark.parametrize("kind", ["loop", "trainer", "lightning", "accelerate", "dcp", "async"])
def test_killed_and_resumed(kind, tmp_path):
    command = [sys.executable, str(KILLS), kind, "--kills", "8", "--dir", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stdout + done.stderr
    expected = rf"{kind} +8 killed, [1-9]\d* resumed, [1-9]\d* trainings, 0 other losses"
    assert re.match(expected, done.stdout), done.stdout
