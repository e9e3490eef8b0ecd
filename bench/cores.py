#!/usr/bin/env python3
"""All cores of a machine: lmc beside memcpy and ZipNN, from one thread to one for each core.

    bench/cores.py LMC [--size GB] [--json OUT] FILE[:BASE]...

`lmc bench` measures in memory: the elements of the most common dtype of each file, repeated to --size, with 1, 2, 4 …
threads, beside memcpy with the same number of threads; with a base, as a delta. ZipNN also compresses files without a
base, with one thread and with all. Then whole processes (bench/process.py) run with all cores, on random bf16 weights
of --size, from a warm page cache.

A copy moves two bytes for each byte of the input, or three if the destination is read before it is written;
decompressing moves `size / raw + 1`, or one more. The share of the memory's bandwidth is the ratio of both, each with
the lower count.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import allocator

if __name__ == "__main__":
    allocator.keep_memory()

warnings.filterwarnings("ignore", category=FutureWarning)

import ml_dtypes  # noqa: E402
import numpy as np  # noqa: E402
import process  # noqa: E402
import tensors  # noqa: E402
import zipnn  # noqa: E402
from origin import machine, origin  # noqa: E402
from safetensors.numpy import save_file  # noqa: E402

GB = 1_000_000_000
ROUNDS = 3


def counts() -> list[int]:
    cores = len(os.sched_getaffinity(0))
    powers = [2**i for i in range(cores.bit_length()) if 2**i <= cores]
    return powers if powers[-1] == cores else [*powers, cores]


def memory(lmc: str, case: str, size: int, levels: str) -> dict:
    """`lmc bench` with every number of threads."""
    file, _, base = case.partition(":")
    threads = ",".join(map(str, counts()))
    command = [lmc, "bench", "--json", "--seconds", "0.5", "--threads", threads, "--peers", "none", "--size", str(size)]
    command += ["--levels", levels, "--isas", machine(lmc)["isas"][-1], *(["--base", base] if base else []), file]
    measured = json.loads(subprocess.check_output(command))
    (found,) = measured["files"]
    found["file"] = Path(file).name
    found["given"] = Path(base).name if base else None
    found["machine"] = measured["machine"]
    return found


def beside_zipnn(file: str, size: int) -> list[dict]:
    """ZipNN, which gets a new copy of its input each time, as it overwrites it; copying is not timed."""
    raw = np.resize(tensors.streams(Path(file))["BF16"], size)
    rows = []
    for threads in (1, counts()[-1]):
        codec = zipnn.ZipNN(input_format="byte", bytearray_dtype="bfloat16", threads=threads)
        spent: dict[str, list[float]] = {"compress": [], "decompress": []}
        packed = b""
        for _ in range(ROUNDS):
            scratch = bytearray(raw)
            start = time.perf_counter()
            packed = codec.compress(scratch)
            middle = time.perf_counter()
            restored = codec.decompress(packed)
            end = time.perf_counter()
            spent["compress"].append(middle - start)
            spent["decompress"].append(end - middle)
            if not np.array_equal(np.frombuffer(restored, np.uint8), raw):
                sys.exit(f"ZipNN with {threads} threads restored other bytes")
        speeds = {way: size / statistics.median(s) / GB for way, s in spent.items()}
        rows.append({"threads": threads, "ratio": len(packed) / size} | speeds)
    return rows


def processes(lmc: str, size: int, folder: Path) -> dict:
    """Whole processes on weights that were never trained."""
    rng = np.random.default_rng(1)
    weights = {}
    each = 4096 * 4096
    for i in range(max(1, size // (2 * each))):
        values = rng.standard_normal(each, np.float32) * np.float32(0.02)
        weights[f"layers.{i}.weight"] = values.astype(ml_dtypes.bfloat16).reshape(4096, 4096)
    path = folder / "weights.safetensors"
    save_file(weights, path)
    process.THREADS = counts()[-1]
    return process.measure(path, path.name, 3, lmc, folder)


def print_memory(found: dict, zipnn_rows: list[dict]) -> None:
    title = found["file"] + (f" given {found['given']}" if found["given"] else "")
    print(f"{title}, {found['raw_size'] / GB:.1f} GB, {found['machine']['isas'][-1]}")
    for copy in found["memcpy"]:
        print(f"  memcpy       {copy['threads']:3} threads {copy['gb_per_s']:8.2f} GB/s")
    for r in found["results"]:
        ways = [f"{w} {r[w]['gb_per_s']:7.2f} GB/s ({r[w]['of_memcpy']:.2f})" for w in ("compress", "decompress")]
        print(f"  lmc {r['level']:8} {r['threads']:3} threads {ways[0]} {ways[1]}  {100 * r['ratio']:.2f} %")
    for r in zipnn_rows:
        ways = [f"{w} {r[w]:7.2f} GB/s" for w in ("compress", "decompress")]
        print(f"  ZipNN        {r['threads']:3} threads {ways[0]} {ways[1]}  {100 * r['ratio']:.2f} %", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("lmc")
    parser.add_argument("cases", nargs="+", metavar="FILE[:BASE]")
    parser.add_argument("--size", type=float, default=2.0, help="GB (default: %(default)s)")
    parser.add_argument("--levels", default="fast,default,max", help="(default: %(default)s)")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    size = int(args.size * 1000) * 1_000_000
    results: dict = {"origin": origin(machine(args.lmc)), "cases": [], "process": None}

    def keep() -> None:
        if args.json:
            args.json.write_text(json.dumps(results, indent=1) + "\n")

    for case in args.cases:
        found = memory(args.lmc, case, size, args.levels)
        found["zipnn"] = [] if found["given"] else beside_zipnn(case, size)
        print_memory(found, found["zipnn"])
        results["cases"].append(found)
        keep()
    with tempfile.TemporaryDirectory(dir=".") as folder:
        results["process"] = processes(args.lmc, size, Path(folder))
    for what, r in results["process"]["results"].items():
        print(f"  {what:16} {r['seconds']:8.2f} s {r['of_cp']:8.2f} × cp && sync", flush=True)
    keep()


if __name__ == "__main__":
    main()
