#!/usr/bin/env python3
"""Runs `lmc bench` for a moment and checks its report: check_bench.py LMC FILE [BASE]

Speeds are not judged, only that everything was measured and that sizes are plausible. `lmc bench` itself compares every
round trip with the data and fails if one differs. With BASE, deltas of it are measured.
"""

import json
import subprocess
import sys

PEERS = {("zstd", "1"), ("zstd", "3"), ("zstd", "19")}
PEERS |= {(name, "") for name in ("lz4", "gzip", "bzip2", "brotli", "xz", "snappy")}
LEVELS = {"fast", "default", "max"}


def check_delta(measured):
    """Checks the fields of deltas. Yields errors."""
    results = measured["results"]
    sizes = {(r["level"], r["given"]): r["size"] for r in results if r["codec"] == "lmc"}
    for level in LEVELS:
        ours = [sizes.get((level, given)) for given in ("base", "nothing", "xor")]
        if None in ours:
            yield f"lmc {level} was not measured as a delta, without the base and on the exclusive or"
        elif not ours[0] < min(ours[1:]):
            yield f"the delta of lmc {level} is no smaller than without the base or the exclusive or: {ours}"
    if not any(r["codec"] == "zstd" and r["given"] == "prefix" for r in results):
        yield "zstd with the base as its prefix was not measured"
    entropy = measured["entropy"]
    if {d["dtype"] for d in entropy["dtypes"]} != set(measured["bytes_by_dtype"]) - {"opaque"}:
        yield f"the entropy is not that of the file's dtypes: {entropy}"
    if not 0.99 < entropy["covered"] < 1:
        yield f"the base has nothing for a part of the file: {entropy}"
    for r in results:
        if abs(r["of_entropy"] - r["ratio"] / entropy["of_raw"]) > 1e-9:
            yield f"{r['codec']} {r['level']}: size over entropy is {r['of_entropy']}"


def main(lmc, file, base=None):
    command = [lmc, "bench", "--json", "--seconds", "0", "--threads", "1,2"]
    command += ["--base", base, "--sample", "400kB"] if base else ["--size", "400kB"]
    report = json.loads(subprocess.run([*command, file], check=True, stdout=subprocess.PIPE).stdout)
    (measured,) = report["files"]
    wrong = list(check_delta(measured)) if base else []
    ours = [r for r in measured["results"] if r["codec"] == "lmc" and r["given"] == ("base" if base else "nothing")]
    seen = {(r["codec"], r["level"]) for r in measured["results"] if r["given"] == ("xor" if base else "nothing")}
    for name in {name for name, _ in PEERS}:
        levels = {level for n, level in PEERS if n == name} - {""}
        if not any(codec == name and (not levels or level in levels) for codec, level in seen):
            wrong.append(f"{name} was not measured")
        if levels - {level for codec, level in seen if codec == name}:
            wrong.append(f"not every level of {name} was measured")
    for level in {r["level"] for r in ours}:
        if len({r["size"] for r in ours if r["level"] == level}) != 1:
            wrong.append(f"sizes of lmc {level} depend on the instruction set or the number of threads")
    if {r["level"] for r in ours} < LEVELS or {r["threads"] for r in ours} != {1, 2}:
        wrong.append("not every level and thread count of lmc was measured")
    for r in measured["results"]:
        for direction in ("compress", "decompress"):
            if not (r["size"] > 0 and r[direction]["gb_per_s"] > 0 and r[direction]["rounds"] > 0):
                wrong.append(f"{r['codec']} {r['level']} has no sensible {direction} figure: {r}")
    if wrong or not ours:
        sys.exit("\n".join(wrong) or "lmc itself was not measured")
    print(f"{len(measured['results'])} results")


if __name__ == "__main__":
    main(*sys.argv[1:])
