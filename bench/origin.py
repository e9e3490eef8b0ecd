"""Where and from what measurements come that are made apart from `bench/run` as a whole."""

import json
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def machine(program: str) -> dict:
    """What `lmc bench` says of the machine and of itself."""
    command = [program, "bench", "--json", "--levels", "fast", "--threads", "1", "--peers", "none", "--seconds", "0"]
    command.append(str(ROOT / "testdata" / "minilm-f32.safetensors"))
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)["machine"]


def origin(described: dict) -> dict[str, str]:
    """What of it is kept for the record."""
    return {
        "cpu": described["cpu"],
        "commit": described["commit"],
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def sentence(measured: dict) -> str:
    """What a page says of it."""
    found = measured.get("origin")
    return f"Measured on {found['cpu']}, commit {found['commit']}, {found['date']}." if found else ""
