#!/usr/bin/env python3
"""Runs `lmc bench` for a moment and checks its report: check_bench.py LMC FILE

Speeds are not judged, only that everything was measured and that sizes are sizes. `lmc bench` itself compares every
round trip with the data and fails if one differs.
"""

import json
import subprocess
import sys

PEERS = {("zstd", "1"), ("zstd", "3"), ("zstd", "19"), ("lz4", ""), ("gzip", ""), ("bzip2", ""), ("snappy", "")}


def main(lmc, file):
    command = [lmc, "bench", "--json", "--seconds", "0", "--threads", "1,2", "--size", "400kB", file]
    report = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    (measured,) = report["files"]
    wrong = []
    ours = [r for r in measured["results"] if r["codec"] == "lmc"]
    seen = {(r["codec"], r["level"]) for r in measured["results"]}
    for name in {name for name, _ in PEERS}:
        levels = {level for n, level in PEERS if n == name} - {""}
        if not any(codec == name and (not levels or level in levels) for codec, level in seen):
            wrong.append(f"{name} was not measured")
        if levels - {level for codec, level in seen if codec == name}:
            wrong.append(f"not every level of {name} was measured")
    for level in {r["level"] for r in ours}:
        if len({r["size"] for r in ours if r["level"] == level}) != 1:
            wrong.append(f"sizes of lmc {level} depend on the instruction set or the number of threads")
    if {r["level"] for r in ours} < {"fast", "default", "max"} or {r["threads"] for r in ours} != {1, 2}:
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
