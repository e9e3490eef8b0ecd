#!/usr/bin/env python3
"""Speed of the Python package beside that of the library, and of many small tensors beside one large.

    bench/run python [FILE.safetensors]      by default the elements of the file that bench/inputs.py makes

Each way takes its turn in every round, in one process, with reused buffers. `lmc bench` measures the library on the
same file, with the same number of threads, before each round and in a separate process. The restored data are compared.
Ratios are medians of the ratios within a round. Writes bench/results/python.json, from which `bench/run --report` makes
a section of docs/benchmarks.md, and prints the tables.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import inputs
import lmc
import lmc.numpy
import lmc.torch
import numpy as np
import origin
import report_python
import tensors
import torch

ROOT = Path(__file__).resolve().parent.parent
MANY, ELEMENTS = 10_000, 2048
Way = Callable[[], Any]


def library(program: str, file: Path, threads: int, isa: str) -> tuple[float, float]:
    """Bytes per second of compressing and restoring with `lmc bench`."""
    command = [program, "bench", "--json", "--levels", "default", "--threads", str(threads), "--isas", isa]
    command += ["--peers", "none", "--seconds", "1", str(file)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    (of_lmc,) = (r for r in json.loads(done.stdout)["files"][0]["results"] if r["codec"] == "lmc")
    return 1e9 * of_lmc["compress"]["gb_per_s"], 1e9 * of_lmc["decompress"]["gb_per_s"]


def seconds_of(way: Way) -> float:
    begun = time.perf_counter()
    way()
    return time.perf_counter() - begun


def memory(file: Path, program: str, isa: str, threads: int, rounds: int) -> list[dict[str, Any]]:
    """Compressing and restoring a file in memory, from and to objects of several kinds."""
    raw = file.read_bytes()
    array = np.frombuffer(raw, np.uint8).copy()
    tensor = torch.from_numpy(array.copy())
    encode, decode = lmc.Compressor(threads=threads), lmc.Decompressor(threads=threads)
    packed = encode.compress(raw)
    room, out = bytearray(lmc.compress_bound(len(raw))), np.empty(len(raw), np.uint8)
    there = torch.empty(len(raw), dtype=torch.uint8)
    ways: dict[str, tuple[bool, Way]] = {
        "`compress`, of `bytes`": (True, lambda: encode.compress(raw)),
        "`compress`, of an array": (True, lambda: encode.compress(array)),
        "`compress_into`, of `bytes`": (True, lambda: encode.compress_into(raw, room)),
        "`compress_into`, of an array": (True, lambda: encode.compress_into(array, room)),
        "`compress_into`, of a tensor": (True, lambda: encode.compress_into(tensor.numpy(), room)),
        "`decompress`": (False, lambda: decode.decompress(packed)),
        "`decompress_into` an array": (False, lambda: decode.decompress_into(packed, out)),
        "`decompress_into` a tensor": (False, lambda: decode.decompress_into(packed, there.numpy())),
        "`decompress_into`, of an array": (False, lambda: decode.decompress_into(np.frombuffer(packed, np.uint8), out)),
    }
    for _, way in ways.values():
        way()
    assert room[: len(packed)] == packed and (out == array).all() and torch.equal(there, tensor)
    found: dict[str, list[float]] = {name: [] for name in ways}
    speeds = list[tuple[float, float]]()
    for _ in range(rounds):
        speeds.append(library(program, file, threads, isa))
        for name, (_, way) in ways.items():
            # The first allocation of memory that is new to a virtual machine is slow.
            way()
            # As long as the library's measurement, so a slow phase has the same weight.
            times, end = list[float](), time.perf_counter() + 0.25
            while not times or time.perf_counter() < end:
                times.append(seconds_of(way))
            found[name].append(len(raw) / statistics.median(times))
    rows = [
        {"what": "`lmc bench`, compress", "gb_per_s": statistics.median(s[0] for s in speeds) / 1e9, "of_library": 1.0}
    ]
    for name, (is_encode, _) in ways.items():
        if name == "`decompress`":
            median = statistics.median(s[1] for s in speeds)
            rows.append({"what": "`lmc bench`, decompress", "gb_per_s": median / 1e9, "of_library": 1.0})
        beside = zip(found[name], speeds, strict=True)
        ratio = statistics.median(mine / own[0 if is_encode else 1] for mine, own in beside)
        rows.append({"what": name, "gb_per_s": statistics.median(found[name]) / 1e9, "of_library": ratio})
    return rows


def small(folder: Path, threads: int, rounds: int) -> list[dict[str, Any]]:
    """Many small tensors and one of the same elements, saved and loaded."""
    rng = np.random.default_rng(1)
    values = (rng.standard_normal(MANY * ELEMENTS) * 0.02).astype(np.float32)
    flat = torch.from_numpy(values).bfloat16()
    names = [f"layers.{i:05}.weight" for i in range(MANY)]
    parts = flat.split(ELEMENTS)
    arrays = {"many": dict(zip(names, (a.copy() for a in np.split(values, MANY)), strict=True)), "one": {"w": values}}
    tensors_of = {"many": dict(zip(names, (t.clone() for t in parts), strict=True)), "one": {"w": flat}}
    rows = []
    for module, states in (("lmc.numpy", arrays), ("lmc.torch", tensors_of)):
        package = {"lmc.numpy": lmc.numpy, "lmc.torch": lmc.torch}[module]
        ways: dict[tuple[str, str], Way] = {}
        for which, state in states.items():
            path = folder / f"{module}-{which}.lmc"
            ways["save", which] = lambda p=package, s=state: p.save(s, threads=threads)
            package.save_file(state, path)
            found = package.load_file(path)
            assert all((found[n] == state[n]).all() for n in state), f"{module}: {which} was not restored"
            ways["load", which] = lambda p=package, f=path: p.load_file(f, threads=threads)
        times: dict[tuple[str, str], list[float]] = {key: [] for key in ways}
        for _ in range(rounds):
            for key, way in ways.items():
                times[key].append(seconds_of(way))
        for what in ("save", "load"):
            many, one = times[what, "many"], times[what, "one"]
            rows.append({
                "what": f"`{module}`, {what}",
                "many": statistics.median(many),
                "one": statistics.median(one),
                "ratio": statistics.median(m / o for m, o in zip(many, one, strict=True)),
            })  # fmt: skip
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--lmc", required=True)
    parser.add_argument("file", type=Path, nargs="?")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--size", type=int, default=256_000_000, help="bytes that its elements are repeated to")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results" / "python.json")
    args = parser.parse_args()
    source = args.file or next(i.path for i in inputs.prepare() if i.name == "minilm bf16")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        streams = tensors.streams(source)
        dtype = max(streams, key=lambda d: streams[d].nbytes if d in tensors.NUMPY else 0)
        elements = streams[dtype].view(tensors.NUMPY[dtype])
        data = tensors.repeated(elements, args.size // elements.itemsize)
        file = folder / "elements.safetensors"
        tensors.write(file, [tensors.Tensor("w", dtype, [len(data)], data)])
        machine = origin.machine(args.lmc)
        measured = {
            "origin": origin.origin(machine),
            "file": args.file.name if args.file else "minilm bf16",
            "dtype": dtype,
            "raw_size": file.stat().st_size,
            "threads": args.threads,
            "rounds": args.rounds,
            "memory": memory(file, args.lmc, machine["isas"][-1], args.threads, args.rounds),
            "small": small(folder, args.threads, args.rounds),
            "tensors": MANY,
            "tensor_size": 2 * ELEMENTS,
        }
    args.out.write_text(json.dumps(measured, indent=1) + "\n")
    print(report_python.tables_of(measured))
    return 0


if __name__ == "__main__":
    sys.exit(main())
