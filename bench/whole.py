#!/usr/bin/env python3
"""Whole processes on a model of gigabytes: the store beside files, and a sparse delta beside the whole.

    bench/make_model.py old.safetensors --width 2560 --layers 32           5.4 GB; of 15 layers 2.7 GB
    bench/whole.py --change old.safetensors new.safetensors                moves 1.7 % of its elements
    bench/whole.py LMC old.safetensors new.safetensors [--rounds N] [--json FILE] [--only NAME]...

Each round runs every command once, one after the other. Before each, its inputs are read once, so that they are in the
page cache as far as memory allows, and all earlier output is synced; output goes to new files beside the inputs, and is
on disk when the command ends. Restored files are compared in the first round. A ratio is that of one round; medians
over the rounds count. On a machine with other work, the ratio of processor time (user and system) says more.
"""

import argparse
import filecmp
import json
import os
import shutil
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import process

# Of a sparse delta: how many of the elements move, by one representable value.
MOVED = 0.017
# The compared quantities, and the bar of each.
BARS = [
    ("compress", "cp", 0.9),
    ("decompress", "cp", 0.7),
    ("snapshot save", "compress", 1.5),
    ("snapshot restore", "decompress", None),
    ("compress --base", "compress", None),
    ("decompress --base", "decompress", 1.0),
    ("snapshot save, delta", "compress", None),
    ("snapshot restore, delta", "decompress", 1.0),
]


@dataclass
class Command:
    """A command, the files that it reads, what it writes (removed before), and the file that this restores, if any."""

    line: list[str]
    reads: list[Path]
    writes: Path | None
    restores: tuple[Path, Path] | None = None


def change(old: Path, new: Path) -> None:
    """Writes a model with some of its elements, drawn at random, moved by one representable value."""
    import make_model
    import numpy as np
    import tensors

    rng = np.random.Generator(np.random.PCG64(1))
    source = tensors.read(old)
    for t in source:
        bits = t.data.copy()
        at = np.flatnonzero(rng.random(bits.size, dtype=np.float32) < MOVED)
        # No sign is crossed: zeros stay, and all values are finite and far from the largest.
        at = at[(bits[at] & 0x7FFF) != 0]
        bits[at] += rng.choice(np.array([1, 0xFFFF], "<u2"), at.size)
        t.data = bits
    # As long a header as the old file's, as the files of a run have.
    tensors.write(new, source, make_model.METADATA)


def commands(lmc: str, old: Path, new: Path, folder: Path, threads: int) -> dict[str, Command]:
    """In an order in which each finds its input."""
    copy, packed, delta, out = (folder / name for name in ("copy", "packed.lmc", "delta.lmc", "out"))
    store = folder / "store"
    # Files of snapshots are matched by name.
    first, second = (folder / name / "model.safetensors" for name in ("first", "second"))
    for link, file in ((first, old), (second, new)):
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        os.link(file, link)

    def run(*line: object) -> list[str]:
        return [lmc, "-q", *map(str, line), "-T", str(threads)]

    def restore(step: int, file: Path) -> Command:
        # The data of both snapshots.
        line = run("snapshot", "restore", store, "--at", step, "-o", out)
        return Command(line, [store], out, (out / first.name, file))

    return {
        "cp": Command(process.then_sync(copy, "cp", old, copy), [old], copy),
        "compress": Command(run("compress", "-o", packed, old), [old], packed),
        "decompress": Command(run("decompress", "-o", out, packed), [packed], out, (out, old)),
        "compress --base": Command(run("compress", "--base", old, "-o", delta, new), [old, new], delta),
        "decompress --base": Command(run("decompress", "--base", old, "-o", out, delta), [old, delta], out, (out, new)),
        "snapshot save": Command(run("snapshot", "save", store, first, "--step", 1), [old], store),
        "snapshot restore": restore(1, old),
        "snapshot save, delta": Command(run("snapshot", "save", store, second, "--step", 2), [new, store], None),
        "snapshot restore, delta": restore(2, new),
    }


def remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def warm(path: Path) -> None:
    """Reads a file, or all files below a directory."""
    for file in [path] if path.is_file() else [f for f in path.rglob("*") if f.is_file()]:
        with open(file, "rb", buffering=0) as f:
            buffer = bytearray(1 << 22)
            while f.readinto(buffer):
                pass


def measure(todo: dict[str, Command], rounds: int, only: Callable[[str], bool]) -> dict[str, list[process.Ran]]:
    """Runs the rounds. Commands that are not measured run in the first one, if another command needs their output."""
    ran: dict[str, list[process.Ran]] = {name: [] for name in todo}
    for i in range(rounds):
        for name, command in todo.items():
            # The second snapshot is a delta of the first.
            needed = only(name) or name == "snapshot save" and only("snapshot save, delta")
            if i > 0 and not needed:
                continue
            if command.writes:
                remove(command.writes)
            for path in command.reads:
                warm(path)
            os.sync()
            ran[name].append(process.run(command.line))
            if command.restores and i == 0 and not filecmp.cmp(*command.restores, shallow=False):
                sys.exit(f"{name} did not restore {command.restores[1]}")
            if command.restores:
                remove(command.writes)
    return {name: times for name, times in ran.items() if only(name)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--change", action="store_true", help="write NEW from OLD, and measure nothing")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", action="append", help="measure this command; can be repeated")
    parser.add_argument("--json", type=Path)
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE")
    args = parser.parse_args()
    if args.change:
        change(*args.files)
        return
    lmc, old, new = args.files
    folder = old.resolve().parent / "whole"
    todo = commands(str(lmc.resolve()), old.resolve(), new.resolve(), folder, args.threads)
    try:
        ran = measure(todo, args.rounds, lambda name: not args.only or name in args.only)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    rows = []
    for name, runs in ran.items():
        row = {"command": name, "peak_memory": max(r.peak for r in runs)}
        row |= {key: [getattr(r, key) for r in runs] for key in ("seconds", "cpu")}
        rows.append(row)
        print(
            f"{name:24} {statistics.median(row['seconds']):7.2f} s, processor {statistics.median(row['cpu']):7.2f} s, "
            f"peak {row['peak_memory'] >> 20} MiB"
        )
    for name, of, bar in BARS:
        if name in ran and of in ran:
            pairs = list(zip(ran[name], ran[of], strict=True))
            times = statistics.median(a.seconds / b.seconds for a, b in pairs)
            cpu = statistics.median(a.cpu / b.cpu for a, b in pairs)
            print(f"{name} over {of}: time {times:.2f}, processor {cpu:.2f}" + (f"; the bar is {bar}" if bar else ""))
    if args.json:
        results = {"raw_size": old.stat().st_size, "threads": args.threads, "rounds": args.rounds, "commands": rows}
        args.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
