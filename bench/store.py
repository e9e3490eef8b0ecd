#!/usr/bin/env python3
"""A run's snapshots in a store: their size, and the time and memory of saving and restoring.

    bench/run store DIR                        the snapshots of DIR (stepNNNNN.safetensors), on the disk of target/
    BENCH_STORE=s3://B/P bench/run store DIR   in that bucket, too, with the environment that `lmc snapshot` takes

Every snapshot is saved by a process of its own, as a run would, beside `cp F G && sync G` of the same file, in turns.
Afterwards each is restored, beside another such copy, and compared. Files come from the page cache. Prints bytes beside
other programs, medians of times, and the most memory of any one process.
"""

import argparse
import filecmp
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import allocator

if __name__ == "__main__":
    allocator.keep_memory()

import peers  # noqa: E402
import process  # noqa: E402
from inputs import DATA  # noqa: E402
from markdown import number, table  # noqa: E402

THREADS = 2


def snapshots(folder: Path) -> list[tuple[int, Path]]:
    """Steps and files, in order."""
    named = ((re.fullmatch(r"step(\d+)\.safetensors", f.name), f) for f in folder.iterdir())
    return sorted((int(m[1]), f) for m, f in named if m)


def copy(source: Path, target: Path) -> float:
    """Seconds of `cp && sync`."""
    target.unlink(missing_ok=True)
    os.sync()
    return process.run(process.then_sync(target, "cp", source, target)).seconds


def logged(lmc: str, store: str) -> list[dict]:
    """The output of `lmc snapshot log`."""
    command = [lmc, "snapshot", "log", store, "--json"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def measure(lmc: str, store: str, files: list[tuple[int, Path]], folder: Path, options: list[str]) -> dict:
    """Saves and restores every snapshot."""
    # Files are matched by name, so the snapshot's file has the same name every time.
    source, target, out = folder / "model.safetensors", folder / "copy", folder / "out"
    rows = {}
    for step, file in files:
        shutil.copyfile(file, source)
        copied = copy(source, target)
        os.sync()
        command = [lmc, "-q", "snapshot", "save", store, str(source), "--step", str(step), "-T", str(THREADS), *options]
        seconds, peak, _ = process.run(command)
        rows[step] = {"step": step, "save": seconds, "save_of_cp": seconds / copied, "save_memory": peak}
    for row in logged(lmc, store):
        rows[row["step"]] |= {k: row[k] for k in ("raw_size", "new_size", "chain", "read_size")}
    for step, file in files:
        copied = copy(file, target)
        shutil.rmtree(out, ignore_errors=True)
        os.sync()
        command = [lmc, "-q", "snapshot", "restore", store, "--at", str(step), "-o", str(out), "-T", str(THREADS)]
        seconds, peak, _ = process.run(command)
        if not filecmp.cmp(out / source.name, file, shallow=False):
            sys.exit(f"{store}: step {step} did not come back as it was")
        rows[step] |= {"restore": seconds, "restore_of_cp": seconds / copied, "restore_memory": peak}
    return {"options": options, "snapshots": list(rows.values())}


def alone(lmc: str, files: list[tuple[int, Path]], folder: Path) -> dict[str, int]:
    """Bytes of all files: as they are, by other programs, and by `lmc` as files, each a delta of the one before."""
    total = {"raw": 0, "zstd -3": 0, "ZipNN": 0, "lmc compress": 0, "lmc compress --base": 0}
    packed, before = folder / "packed", None
    for _, file in files:
        total["raw"] += file.stat().st_size
        subprocess.run(["zstd", "-q", "-3", "-f", file, "-o", packed], check=True)
        total["zstd -3"] += packed.stat().st_size
        total["ZipNN"] += peers.sizes(file)["ZipNN"]
        for name, base in (("lmc compress", None), ("lmc compress --base", before)):
            options = [] if base is None else ["--base", base]
            subprocess.run([lmc, "-q", "compress", "-f", "-o", packed, *options, file], check=True)
            total[name] += packed.stat().st_size
        before = file
    return total


def place_of(location: str) -> str:
    return "bucket" if location.startswith("s3://") else "directory"


def bytes_table(measured: dict) -> str:
    """The size of the whole run, by program."""
    sizes = dict(measured["bytes"])
    for name, store in measured["stores"].items():
        sizes[f"`lmc snapshot`, {name}"] = sum(r["new_size"] for r in store["snapshots"])
    raw = sizes["raw"]
    rows = [[name, f"{n:,}", f"{100 * n / raw:.2f} %"] for name, n in sizes.items()]
    return table(["", "bytes", "of raw"], rows)


def time_table(measured: dict) -> str:
    """Medians, and the most memory of any one process."""
    rows = []
    for name, store in measured["stores"].items():
        row = [name]
        for what in ("save", "restore"):
            row += [
                f"{statistics.median(r[what] for r in store['snapshots']):.3f}",
                number(statistics.median(r[f"{what}_of_cp"] for r in store["snapshots"])),
                f"{max(r[f'{what}_memory'] for r in store['snapshots']) / 2**20:.0f}",
            ]
        rows.append(row)
    headings = ["", "save, s", "× `cp && sync`", "peak MiB", "restore, s", "× `cp && sync`", "peak MiB"]
    return table(headings, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="stepNNNNN.safetensors, two at least")
    parser.add_argument("--lmc", required=True)
    args = parser.parse_args()
    files = snapshots(args.folder)
    if len(files) < 2:
        parser.error(f"{args.folder} has no two snapshots named stepNNNNN.safetensors")
    lmc = str(Path(args.lmc).resolve())
    folder = DATA / "store"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    locations = [str(folder / "run")]
    if bucket := os.environ.get("BENCH_STORE"):
        # A store never overwrites anything: each measurement has its own.
        locations.append(f"{bucket}/{time.time_ns()}")
    results = {"bytes": alone(lmc, files, folder), "stores": {}}
    for location in locations:
        results["stores"][place_of(location)] = measure(lmc, location, files, folder, [])
    cached = measure(lmc, str(folder / "cached"), files, folder, ["--cache", str(folder / "cache")])
    results["stores"]["directory, cache"] = cached
    shutil.rmtree(folder)
    print(bytes_table(results))
    print(time_table(results))


if __name__ == "__main__":
    main()
