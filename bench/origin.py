"""The machine and commit of measurements that are made separately from `bench/run`."""

import json
import subprocess
import time
from pathlib import Path


def beside(program: str) -> str:
    """`lmc-bench`, which cargo built with the program."""
    return str(Path(program).resolve().with_name("lmc-bench"))


def machine(program: str) -> dict:
    """The machine and the version, as reported by `lmc-bench`, which lies beside `program`."""
    done = subprocess.run([beside(program)], check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)["machine"]


def origin(described: dict) -> dict:
    """What is kept of it beside results."""
    kept = ("cpu", "cores", "l3_cache", "memory", "isas", "lmc", "commit", "rustc", "load")
    return {key: described[key] for key in kept} | {"date": time.strftime("%Y-%m-%d", time.gmtime())}


def sentence(measured: dict) -> str:
    """A sentence about it for a page."""
    found = measured.get("origin")
    return f"Measured on {found['cpu']}, commit {found['commit']}, {found['date']}." if found else ""
