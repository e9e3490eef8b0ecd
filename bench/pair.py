#!/usr/bin/env python3
"""Compares two builds of the program on the same files: bench/pair.py OLD NEW [OPTION...] FILE[:BASE]...

The old one is built from the commit to compare with:

    git worktree add /tmp/old COMMIT && cargo build --release --manifest-path /tmp/old/crates/lmc-cli/Cargo.toml

Each round runs, in random order, the old program twice and the new one once, from file to file. Printed is the median
over the rounds of the processor time (user and system) of the new over that of the old; beside it the old over itself,
the spread of the machine. `--sizes` compresses each file once with each and prints sizes in per cent of raw.
`--memory` compares speeds in memory, of all levels with one instruction set (`--isa`): OLD and NEW are then two builds
of `lmc-bench`.
"""

import argparse
import json
import random
import resource
import statistics
import subprocess
import tempfile
from pathlib import Path


def seconds(command: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def size_row(programs: list[Path], options: list[str], file: str, directory: Path) -> str:
    raw = Path(file).stat().st_size
    target = directory / "size.lmc"
    sizes = []
    for program in programs:
        subprocess.run(
            [program, "compress", "--quiet", "--force", *options, file, "--output", target],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        sizes.append(target.stat().st_size)
    old, new = sizes
    return f"{raw} | {old} | {new} | {100 * old / raw:.3f} | {100 * new / raw:.3f}"


def speeds(program: Path, isa: str, file: str, base: str) -> dict[tuple[str, str], float]:
    """GB/s of each level, in and out, with one thread."""
    command = [program, "--seconds", "0.5", "--isa", isa, "--peers", "none"]
    bases = ["--base", base] if base else []
    done = subprocess.run([*command, *bases, file], check=True, capture_output=True)
    (measured,) = json.loads(done.stdout)["files"]
    return {
        (row["level"], way): row[way]["gb_per_s"] for row in measured["results"] for way in ("compress", "decompress")
    }


def memory_rows(ways: dict[str, Path], isa: str, rounds: int, cases: list[str]) -> None:
    print("| | level | compress: new / old | old / old | decompress: new / old | old / old |")
    print("| --- | --- | --: | --: | --: | --: |")
    every: dict[tuple[str, str], list[float]] = {}
    for case in cases:
        file, _, base = case.partition(":")
        name = Path(file).name + (f" from {Path(base).name}" if base else "")
        runs = [
            {way: speeds(ways[way], isa, file, base) for way in random.sample(list(ways), len(ways))}
            for _ in range(rounds)
        ]
        for level in dict.fromkeys(level for level, _ in runs[0]["old"]):
            cells = []
            for direction in ("compress", "decompress"):
                key = (level, direction)
                for way in ("new", "again"):
                    ratio = statistics.median(run[way][key] / run["old"][key] for run in runs)
                    cells.append(f"{ratio:.3f}")
                    every.setdefault((direction, way), []).append(ratio)
            print(f"| {name} | {level} | {' | '.join(cells)} |", flush=True)
    means = [f"{statistics.geometric_mean(ratios):.3f}" for ratios in every.values()]
    print(f"| geometric mean | | {' | '.join(means)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("cases", nargs="+", metavar="FILE[:BASE]")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--level", default="default")
    parser.add_argument("--sizes", action="store_true")
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--isa", default="avx512", help="of --memory")
    arguments = parser.parse_args()
    ways = {"old": arguments.old, "again": arguments.old, "new": arguments.new}
    if arguments.memory:
        memory_rows(ways, arguments.isa, arguments.rounds, arguments.cases)
        return
    if arguments.sizes:
        print("| | raw | old | new | old, % | new, % |")
        print("| --- | --: | --: | --: | --: | --: |")
    else:
        print("| | compress: new / old | old / old | bytes: new / old | decompress: new / old | old / old |")
        print("| --- | --: | --: | --: | --: | --: |")
    memory = Path("/dev/shm")  # On a disk, writing back the output of an earlier run would be counted, too.
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as directory:
        compressed = {way: Path(directory, f"{way}.lmc") for way in ways}
        restored = Path(directory, "restored")
        for case in arguments.cases:
            file, _, base = case.partition(":")
            bases = ["--base", base] if base else []
            name = Path(file).name + (f" from {Path(base).name}" if base else "")
            level = ["--level", arguments.level]
            if arguments.sizes:
                row = size_row([arguments.old, arguments.new], [*level, *bases], file, Path(directory))
                print(f"| {name} | {row} |", flush=True)
                continue
            options = ["--quiet", "--force", "--threads", str(arguments.threads)]
            times: dict[str, list[dict[str, float]]] = {"compress": [], "decompress": []}
            for _ in range(arguments.rounds + 1):
                for command, rounds in times.items():
                    run = {}
                    for way in random.sample(list(ways), len(ways)):
                        source, target = (
                            (file, compressed[way]) if command == "compress" else (compressed[way], restored)
                        )
                        chosen = [*options, *(level if command == "compress" else []), *bases]
                        run[way] = seconds([ways[way], command, *chosen, source, "--output", target])
                    rounds.append(run)
            row = []
            for rounds in times.values():
                # The first round warms the page cache.
                row.append([statistics.median(r[way] / r["old"] for r in rounds[1:]) for way in ("new", "again")])
            sizes = compressed["new"].stat().st_size / compressed["old"].stat().st_size
            (c, cc), (d, dd) = row
            print(f"| {name} | {c:.3f} | {cc:.3f} | {sizes:.4f} | {d:.3f} | {dd:.3f} |", flush=True)


if __name__ == "__main__":
    main()
