#!/usr/bin/env python3
"""Whole processes on files: `lmc compress` and `lmc decompress` beside `cp F G && sync G` and `zstd -1 -T2`.

    bench/run process FILE …

All output is on disk in the end: lmc syncs its output, the others are followed by `sync`. The file is in the page
cache. Each round runs every command once, after a sync of its own; a ratio is that of one round, and medians over the
rounds count.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

THREADS = 2


def then_sync(target: Path, *command: object) -> list[str]:
    """A command, and a sync of the file that it writes."""
    return ["sh", "-c", '"$@" && sync "$0"', str(target), *map(str, command)]


def commands(lmc: str, file: Path, folder: Path) -> dict[str, tuple[list[str], Path]]:
    """Name → command and the file that it writes, in an order in which each finds its input."""
    copy, packed, unpacked = folder / "process.copy", folder / "process.lmc", folder / "process.out"
    zst, unzst = folder / "process.zst", folder / "process.unzst"

    def synced(target: Path, *command: object) -> tuple[list[str], Path]:
        return then_sync(target, *command), target

    quiet = [lmc, "-q"]
    found = {
        "cp": synced(copy, "cp", file, copy),
        "lmc compress": ([*quiet, "compress", "-T", str(THREADS), "-o", str(packed), str(file)], packed),
        "lmc decompress": ([*quiet, "decompress", "-T", str(THREADS), "-o", str(unpacked), str(packed)], unpacked),
    }
    if shutil.which("zstd"):
        found["zstd -1"] = synced(zst, "zstd", "-q", "-1", f"-T{THREADS}", file, "-o", zst)
        found["zstd -d"] = synced(unzst, "zstd", "-q", "-d", zst, "-o", unzst)
    return found


# A process inherits the peak memory of the one that it was forked from; so commands are started from a small one.
LAUNCHER = """
import os, sys, time
start = time.perf_counter()
child = os.posix_spawnp(sys.argv[1], sys.argv[1:], os.environ)
_, status, usage = os.wait4(child, 0)
print(time.perf_counter() - start, usage.ru_maxrss * 1024, usage.ru_utime + usage.ru_stime)
sys.exit(os.waitstatus_to_exitcode(status))
"""


class Ran(NamedTuple):
    """Seconds, the peak of resident memory in bytes, and seconds of processor time, user and system."""

    seconds: float
    peak: int
    cpu: float


def run(command: list[str]) -> Ran:
    launcher = [sys.executable, "-I", "-S", "-c", LAUNCHER, *command]
    done = subprocess.run(launcher, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit status {done.returncode}")
    # After what the command prints.
    seconds, peak, cpu = done.stdout.splitlines()[-1].split()
    return Ran(float(seconds), int(peak), float(cpu))


def measure(path: Path, name: str, rounds: int, lmc: str, folder: Path) -> dict:
    """Runs the rounds on one file; checks that both decompressors restore it."""
    raw = path.read_bytes()
    todo = commands(str(Path(lmc).resolve()), path.resolve(), folder.resolve())
    seconds: dict[str, list[float]] = {what: [] for what in todo}
    memory = dict.fromkeys(todo, 0)
    sizes: dict[str, int] = {}
    for _ in range(rounds):
        for _, target in todo.values():
            target.unlink(missing_ok=True)
        for what, (command, target) in todo.items():
            os.sync()
            ran = run(command)
            seconds[what].append(ran.seconds)
            memory[what] = max(memory[what], ran.peak)
            sizes[what] = target.stat().st_size
        for what in todo.keys() & {"lmc decompress", "zstd -d"}:
            if todo[what][1].read_bytes() != raw:
                sys.exit(f"{what} did not restore {path}")
    for _, target in todo.values():
        target.unlink()
    results = {
        what: {
            "seconds": statistics.median(times),
            "of_cp": statistics.median(a / b for a, b in zip(times, seconds["cp"], strict=True)),
            "gb_per_s": len(raw) / 1e9 / statistics.median(times),
            "peak_memory": memory[what],
            "output": sizes[what],
        }
        for what, times in seconds.items()
    }
    return {"file": name, "raw_size": len(raw), "threads": THREADS, "rounds": rounds, "results": results}


def markdown(measured: dict) -> str:
    lines = [
        f"{measured['file']}: {measured['raw_size']:,} bytes, "
        f"{measured['threads']} threads, {measured['rounds']} rounds",
        "",
        "| process | seconds | × the time of `cp && sync` | GB/s | bytes written | peak memory MiB |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for what, r in measured["results"].items():
        lines.append(
            f"| {what} | {r['seconds']:.3f} | {r['of_cp']:.2f} | {r['gb_per_s']:.2f} "
            f"| {r['output']:,} | {r['peak_memory'] / 2**20:.0f} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--lmc", required=True)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--folder", type=Path, default=Path("target/bench"), help="for output, on the disk to measure")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    for file in args.files:
        print(markdown(measure(file, file.name, args.rounds, args.lmc, args.folder)))


if __name__ == "__main__":
    main()
