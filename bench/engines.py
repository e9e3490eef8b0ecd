#!/usr/bin/env python3
"""Off-the-shelf compressors on the checkpoints of a run, each alone and as the exclusive or with the one before.

    bench/run engines CHECKPOINT CHECKPOINT …          safetensors files, in the order of their steps

The question of arXiv 2505.09810, for any run: zstd, gzip (zlib), bzip2, lz4, brotli, xz and snappy, on the bytes as
they are and grouped into byte planes, beside lmc. Each cell is the smaller of both ways in per cent of raw. zstd 19,
bzip2, brotli and xz get a sample of 4 MB. The last table has speeds, over that of a copy of the same bytes, of the last
checkpoint and its delta, one thread. `bench/run peers` has ZipNN, OpenZL and pcodec.
"""

import argparse
import json
import subprocess
from pathlib import Path

import origin
from markdown import number, table


def measured(program: str, seconds: float, file: str, base: str | None) -> dict[str, dict]:
    """By name and level, what is smaller: as is or grouped."""
    given = ["--base", base] if base else []
    command = [origin.beside(program), "--seconds", str(seconds), *given, file]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    (found,) = json.loads(done.stdout)["files"]
    best: dict[str, dict] = {}
    for r in found["results"]:
        # Of a delta, lmc is also measured without the base.
        if not (base and r["codec"] == "lmc" and r["given"] == "nothing"):
            name = f"{r['codec']} {r['level']}".strip()
            best[name] = min(best.get(name, r), r, key=lambda r: r["ratio"])
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("checkpoints", nargs="+")
    parser.add_argument("--lmc", required=True, help="the program; lmc-bench lies beside it")
    parser.add_argument("--seconds", type=float, default=0.2, help="of each compressor and checkpoint")
    args = parser.parse_args()
    files = args.checkpoints
    alone = [measured(args.lmc, args.seconds, file, None) for file in files]
    deltas = [measured(args.lmc, args.seconds, new, old) for old, new in zip(files, files[1:], strict=False)]
    # Checkpoints that are directories have files of the same name.
    same = len({Path(file).name for file in files}) < len(files)
    names = [Path(file).parent.name if same else Path(file).name for file in files]
    for title, columns, titles in [("alone", alone, names), ("given the one before", deltas, names[1:])]:
        if columns:
            rows = [[name, *(f"{100 * c[name]['ratio']:.2f}" for c in columns)] for name in alone[0]]
            print(table([f"{title}, % of raw", *titles], rows))
    ways, last = ("compress", "decompress"), [alone[-1], *deltas[-1:]]
    rows = [
        [name, *(number(of[name][way]["of_memcpy"]) if name in of else "" for of in last for way in ways)]
        for name in dict.fromkeys(name for of in last for name in of)
    ]
    print(table(["speed of a copy, the last one", *ways, *(f"delta, {way}" for way in ways if deltas)], rows))


if __name__ == "__main__":
    main()
