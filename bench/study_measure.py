"""The sizes that bench/study.py measures of a run."""

from __future__ import annotations

import concurrent.futures
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import lmc
import origin
from study_run import Phase, Run

# Codecs beside lmc, on samples; with a base, those that get the exclusive or.
PEERS = "zstd-1,zstd-3,zstd-19,gzip,bzip2,lz4,brotli,xz,snappy"
DELTA_PEERS = f"lmc-alone,{PEERS},zstd-patch"


class Measure:
    """Sizes, by the program, of several files at a time."""

    def __init__(self, program: str, folder: Path) -> None:
        self.program, self.folder = program, folder
        self.pool = concurrent.futures.ThreadPoolExecutor(max(1, len(os.sched_getaffinity(0)) // 2))

    def call(self, *command: object) -> str:
        done = subprocess.run([self.program, *map(str, command)], stdout=subprocess.PIPE, text=True)
        if done.returncode != 0:
            sys.exit(f"{self.program} {' '.join(map(str, command))}: exit status {done.returncode}")
        return done.stdout

    def size(self, file: Path, base: Path | None = None) -> dict[str, Any]:
        """Bytes of a file, raw and compressed."""
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            packed = Path(folder) / "packed.lmc"
            options = ["--base", base] if base else []
            self.call("compress", "-q", "-T", 2, *options, "-o", packed, file)
            listed = json.loads(self.call("list", "--json", packed))
        return {"raw_size": listed["raw_size"], "size": listed["compressed_size"]}

    def engines(self, what: str, file: Path, base: Path | None = None) -> dict[str, Any]:
        given = ["--base", base] if base else []
        options = [*given, "--peers", DELTA_PEERS if base else PEERS]
        command = [origin.beside(self.program), "--seconds", 0, "--sample", 16_000_000, *options, file]
        done = subprocess.run(list(map(str, command)), check=True, stdout=subprocess.PIPE, text=True)
        (found,) = json.loads(done.stdout)["files"]
        keep = ("codec", "level", "grouped", "given", "sampled", "ratio")
        return {"what": what, "results": [{k: r[k] for k in keep} for r in found["results"]]}


def restored(store: Path, step: int, folder: Path) -> Path:
    (path,) = lmc.Store(store).restore(folder / f"step-{step:06}", step)
    return path


def measured_weights(phase: Phase, measure: Measure, scratch: Path) -> dict[str, Any]:
    """The last weights of a phase, and their deltas by distance."""
    found: dict[str, Any] = {"distances": [], "engines": []}
    submit = measure.pool.submit
    last = restored(phase.store, phase.last, scratch)
    bases = {}
    distance = 1
    while phase.last - distance >= phase.first:
        base = restored(phase.store, phase.last - distance, scratch)
        row = {"phase": phase.name, "step": phase.last, "distance": distance}
        found["distances"].append(row | {"size": submit(measure.size, last, base)})
        bases[distance] = base
        distance *= 2
    found = resolved(found)
    for distance in sorted({1, 8, 64} & bases.keys()):
        found["engines"].append(measure.engines(f"{phase.name}, Δ {distance}", last, bases[distance]))
    found["engines"].append(measure.engines(phase.name, last))
    return found


def measure(run: Run, measure: Measure) -> dict[str, Any]:
    """Everything of the module's documentation."""
    found: dict[str, Any] = {"distances": [], "engines": []}
    with tempfile.TemporaryDirectory(dir=run.folder) as folder:
        for phase in run.phases:
            scratch = Path(folder) / phase.name
            for key, rows in measured_weights(phase, measure, scratch).items():
                found[key] += rows
            shutil.rmtree(scratch)
            print(f"measured the weights of {phase.name}", flush=True)
    return found


def resolved(value: Any) -> Any:
    """The same with results in place of futures."""
    if isinstance(value, concurrent.futures.Future):
        return value.result()
    if isinstance(value, dict):
        return {k: resolved(v) for k, v in value.items()}
    return [resolved(v) for v in value] if isinstance(value, list) else value
