"""Where and from what measurements come that are made apart from `bench/run` as a whole."""

import datetime
import platform
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def processor() -> str:
    """Model, family and stepping, as `lmc bench` says them: virtual machines hide the name but not the numbers."""
    try:
        first = Path("/proc/cpuinfo").read_text().partition("\n\n")[0]
    except OSError:
        return platform.machine()
    fields = {k.strip(): v.strip() for k, _, v in (line.partition(":") for line in first.splitlines())}
    name = fields.get("model name", platform.machine())
    numbers = [f"{key.split()[-1]} {fields[key]}" for key in ("cpu family", "model", "stepping") if key in fields]
    return f"{name} ({', '.join(numbers)})" if numbers else name


def commit() -> str:
    """The commit of the tree, with a plus if something in it differs."""

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        return done.stdout.strip() if done.returncode == 0 else ""

    found = git("rev-parse", "--short=12", "HEAD") or "unknown"
    changed = git("status", "--porcelain", "--", ".", ":!bench/results", ":!docs/benchmarks*")
    return f"{found}+" if changed else found


def origin() -> dict[str, str]:
    """For the record."""
    return {"cpu": processor(), "commit": commit(), "date": datetime.date.today().isoformat()}


def sentence(measured: dict) -> str:
    """What a page says of it."""
    found = measured.get("origin")
    return f"Measured on {found['cpu']}, commit {found['commit']}, {found['date']}." if found else ""
