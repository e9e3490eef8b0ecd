"""The machine and commit of measurements that are made separately from `bench/run`."""

import json
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def machine(program: str) -> dict:
    """The machine and the version, as reported by `lmc bench`."""
    command = [program, "bench", "--json", "--levels", "fast", "--threads", "1", "--peers", "none", "--seconds", "0"]
    command.append(str(ROOT / "testdata" / "minilm-f32.safetensors"))
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)["machine"]


def origin(described: dict) -> dict:
    """What is kept of it beside results."""
    kept = ("cpu", "cores", "l3_cache", "memory", "isas", "lmc", "commit", "rustc", "load")
    return {key: described[key] for key in kept} | {"date": time.strftime("%Y-%m-%d", time.gmtime())}


def sentence(measured: dict) -> str:
    """A sentence about it for a page."""
    found = measured.get("origin")
    return f"Measured on {found['cpu']}, commit {found['commit']}, {found['date']}." if found else ""
