#!/usr/bin/env python3
"""The demonstration behind ./demo: demo.py LMC [--quick]"""

import argparse
import filecmp
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TESTDATA = Path(__file__).resolve().parent.parent / "testdata"
ISAS = ["avx512", "avx2", "neon", "portable"]  # fastest first


def run(*command, cwd=None):
    """Runs a command and returns its output; shows its message and stops if it fails."""
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, cwd=cwd)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\nexits {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def table(heading, rows):
    """Prints rows of strings: the first column to the left, the others to the right."""
    widths = [max(len(row[i]) for row in [heading, *rows]) for i in range(len(heading))]
    for row in [heading, ["-" * w for w in widths], *rows]:
        cells = [c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))]
        print("  " + "  ".join(cells).rstrip())


def restore(lmc, files, work):
    """Compresses each file, restores it and compares every byte."""
    print("\nCompressing the model files of testdata/ and restoring them:\n")
    for file in files:
        packed, back = work / f"{file.name}.lmc", work / file.name
        run(lmc, "compress", "-q", file, "-o", packed)
        run(lmc, "test", "-q", packed)
        run(lmc, "decompress", "-q", packed, "-o", back)
        if not filecmp.cmp(file, back, shallow=False):
            sys.exit(f"{file.name}: the restored file differs")
        print(f"  {file.name}: {file.stat().st_size} -> {packed.stat().st_size} bytes, restored bit for bit")


def show_list(lmc, packed):
    print(f"\n$ lmc list {packed.name}     (the first lines)\n")
    lines = run(lmc.resolve(), "list", packed.name, cwd=packed.parent).splitlines()
    for line in lines[:12]:
        print(f"  {line}".rstrip())
    if len(lines) > 12:
        print(f"  ... {len(lines) - 12} more lines")


def sizes_and_speeds(lmc, files, work, seconds):
    """One table from `lmc bench`, which verifies every round trip that it measures."""
    print("\nMeasuring in memory, one thread (lmc bench) ...\n")
    report = json.loads(
        run(lmc, "bench", "--json", "--seconds", seconds, "--threads", 1, "--levels", "default",
            "--peers", "zstd-3,zstd-19", "--sample", 0, *files)
    )  # fmt: skip
    rows = []
    for file, measured in zip(files, report["files"], strict=True):
        plain = [r for r in measured["results"] if not r["grouped"]]
        zstd = {r["level"]: r for r in plain if r["codec"] == "zstd"}
        best = min((r for r in plain if r["codec"] == "lmc"), key=lambda r: ISAS.index(r["isa"]))
        size = (work / f"{file.name}.lmc").stat().st_size
        speeds = [best["compress"], best["decompress"], zstd["3"]["compress"], zstd["3"]["decompress"]]
        rows.append(
            [file.stem, f"{file.stat().st_size:,}", f"{size:,}", f"{100 * size / file.stat().st_size:.1f} %"]
            + [f"{100 * zstd['19']['ratio']:.1f} %"]
            + [f"{s['gb_per_s']:.2f}" for s in speeds]
            + [f"{measured['memcpy'][0]['gb_per_s']:.1f}"]
        )
    table(
        ["file", "raw bytes", "lmc bytes", "lmc", "zstd -19", "lmc in", "out", "zstd -3 in", "out", "memcpy"],
        rows,
    )
    print(f"\n  in, out: compressing and decompressing, GB of raw data a second; lmc uses {best['isa']}")
    print("  these files fit into the processor's cache, which helps memcpy most; docs/benchmarks.md has larger ones")


def enlarge(files, large, copies):
    """One safetensors file with all tensors of the others, many times over.

    Elements are rotated in every copy, so that no tensor equals another one, which lmc would store as a reference.
    """
    header, bodies, at = {}, [], 0
    for n, file in enumerate(files * copies):
        data = file.read_bytes()
        (length,) = struct.unpack("<Q", data[:8])
        body = bytearray(data[8 + length :])
        for name, tensor in json.loads(data[8 : 8 + length]).items():
            if name != "__metadata__":
                begin, end = tensor["data_offsets"]
                shift = n * 64 * (2 if tensor["dtype"] == "BF16" else 4) % max(end - begin, 1)
                body[begin:end] = body[begin + shift : end] + body[begin : begin + shift]
                tensor["data_offsets"] = [at + begin, at + end]
                header[f"{n}.{name}"] = tensor
        bodies.append(body)
        at += len(body)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    large.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(bodies))


def against_cp(lmc, files, work, copies):
    """Whole commands on one large file, written durably, beside cp."""
    large, copy, packed, back = (work / n for n in ("large", "copy", "packed", "back"))
    enlarge(files, large, copies)
    size = large.stat().st_size
    print(f"\nWhole commands on {size / 1e6:.0f} MB ({copies} x the tensors above), output synced to disk:\n")
    commands = [
        ("cp F G && sync G", ["sh", "-c", 'cp "$0" "$1" && sync "$1"', large, copy]),
        ("lmc compress F", [lmc, "compress", "-q", "-f", large, "-o", packed]),
        ("lmc decompress F.lmc", [lmc, "decompress", "-q", "-f", packed, "-o", back]),
    ]
    rows = []
    for name, command in commands:
        times = []
        for _ in range(3):
            start = time.perf_counter()
            run(*command)
            times.append(time.perf_counter() - start)
        rows.append([name, f"{min(times):.2f} s", f"{size / min(times) / 1e9:.2f} GB/s"])
    if not filecmp.cmp(large, back, shallow=False):
        sys.exit("the restored large file differs")
    table(["command", "best of 3", "raw data"], rows)
    print(f"\n  {size:,} -> {packed.stat().st_size:,} bytes, restored bit for bit; {os.cpu_count()} cores")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("lmc", type=Path)
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    sys.stdout.reconfigure(line_buffering=True)
    files = sorted(TESTDATA.glob("*.safetensors"))
    work = Path(tempfile.mkdtemp(prefix="lmc-demo-"))
    try:
        restore(args.lmc, files, work)
        show_list(args.lmc, work / "gpt-step310-weights.safetensors.lmc")
        sizes_and_speeds(args.lmc, files, work, 0.1 if args.quick else 0.5)
        against_cp(args.lmc, files, work, 8 if args.quick else 40)
    finally:
        shutil.rmtree(work)


if __name__ == "__main__":
    main()
