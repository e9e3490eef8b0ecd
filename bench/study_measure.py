"""The sizes and times that bench/study.py measures of a run."""

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
from study_run import ANCHOR, KINDS, Phase, Run

# Codecs beside lmc, on samples; with a base, those that get the exclusive or.
PEERS = "zstd-1,zstd-3,zstd-19,gzip,bzip2,lz4,brotli,xz,snappy"
DELTA_PEERS = f"lmc-alone,{PEERS},zstd-patch"
# Of whole states, which are large.
QUICK_PEERS = "zstd-1,zstd-19,bzip2"

# Runs a program, and writes what it took.
METER = """
import json, resource, subprocess, sys, time
started = time.perf_counter()
status = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode
took = time.perf_counter() - started
used = resource.getrusage(resource.RUSAGE_CHILDREN)
found = {"seconds": took, "cpu_seconds": used.ru_utime + used.ru_stime, "peak_memory": used.ru_maxrss * 1024}
print(json.dumps(found))
sys.exit(status)
"""


class Measure:
    """Sizes, by the program, of several files at a time."""

    def __init__(self, program: str, folder: Path, seconds: float) -> None:
        # Seconds are those of each codec whose speed is measured.
        self.program, self.folder, self.seconds = program, folder, seconds
        self.isa = origin.machine(program)["isas"][-1]
        self.pool = concurrent.futures.ThreadPoolExecutor(max(1, len(os.sched_getaffinity(0)) // 2))

    def call(self, *command: object) -> str:
        done = subprocess.run([self.program, *map(str, command)], stdout=subprocess.PIPE, text=True)
        if done.returncode != 0:
            sys.exit(f"{self.program} {' '.join(map(str, command))}: exit status {done.returncode}")
        return done.stdout

    def size(self, file: Path, base: Path | None = None) -> dict[str, Any]:
        """Bytes of a file and of each of its kinds, raw and compressed."""
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            packed = Path(folder) / "packed.lmc"
            options = ["--base", base] if base else []
            self.call("compress", "-q", "-T", 2, *options, "-o", packed, file)
            listed = json.loads(self.call("list", "--json", packed))
        kinds: dict[str, list[int]] = {}
        for segment in listed["segments"]:
            name = segment["name"] or ""
            kind = name.partition(".")[0]
            total = kinds.setdefault(kind if kind in KINDS else "weights" if name else "header", [0, 0])
            total[0] += segment["raw_size"]
            total[1] += segment["compressed_size"]
        whole = {"raw_size": listed["raw_size"], "size": listed["compressed_size"]}
        return whole | {"kinds": {k: {"raw_size": r, "size": c} for k, (r, c) in kinds.items()}}

    def engines(self, what: str, file: Path, base: Path | None = None, peers: str = "") -> dict[str, Any]:
        given = ["--base", base] if base else []
        options = [*given, "--peers", peers or (DELTA_PEERS if base else PEERS)]
        rounds = ["--seconds", self.seconds, "--isa", self.isa, "--sample", 16_000_000]
        command = [origin.beside(self.program), *rounds, *options, file]
        done = subprocess.run(list(map(str, command)), check=True, stdout=subprocess.PIPE, text=True)
        (found,) = json.loads(done.stdout)["files"]
        keep = ("codec", "level", "grouped", "given", "sampled", "isa", "ratio")
        rows = [
            {k: r[k] for k in keep} | {way: r[way]["of_memcpy"] for way in ("compress", "decompress")}
            for r in found["results"]
        ]
        return {"what": what, "results": rows}

    def analyze(self, *command: object) -> dict[str, Any]:
        """What `lmc analyze` takes, in the folder of the run."""
        # Versions of a store are restored to the directory of temporary files, which may be small.
        environment = os.environ | {"TMPDIR": str(self.folder.absolute())}
        line = [str(Path(self.program).absolute()), "analyze", "-q", *map(str, command)]
        # A process of its own, because a child's peak is at least what its parent had when it began.
        meter = [sys.executable, "-S", "-c", METER, *line]
        done = subprocess.run(meter, cwd=self.folder, env=environment, stdout=subprocess.PIPE, text=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(line)}: exit status {done.returncode}")
        return json.loads(done.stdout)


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
    # One after the other: speeds are measured.
    for distance in sorted({1, 8, 64} & bases.keys()):
        found["engines"].append(measure.engines(f"{phase.name}, Δ {distance}", last, bases[distance]))
    found["engines"].append(measure.engines(phase.name, last))
    return found


def measured_states(run: Run, measure: Measure, scratch: Path) -> dict[str, Any]:
    """Each state alone, given the one of the step before, and the last one of pretraining by distance."""
    found: dict[str, Any] = {"states": [], "state_distances": [], "engines": []}
    kept = sorted(s.step for s in lmc.Store(run.states).snapshots())
    end = run.phases[0].last
    submit = measure.pool.submit
    last = restored(run.states, end, scratch)
    before: Path | None = None
    for step in kept:
        path = last if step == end else restored(run.states, step, scratch)
        phase = next(p.name for p in run.phases if step <= p.last)
        row = {"phase": phase, "step": step, "alone": submit(measure.size, path), "given": None}
        if before is not None and step - 1 in kept:
            row["given"] = submit(measure.size, path, before)
        distance = end - step
        if distance > 0 and distance.bit_count() == 1:
            by_distance = {"phase": phase, "step": end, "distance": distance}
            found["state_distances"].append(by_distance | {"size": submit(measure.size, last, path)})
        found["states"].append(row)
        # Before files are removed.
        found = resolved(found)
        if step == end:
            found["engines"].append(measure.engines("state", path, None, QUICK_PEERS))
            found["engines"].append(measure.engines("state, Δ 1", path, before, QUICK_PEERS))
        print(f"measured the state of step {step}", flush=True)
        if before is not None and before != last:
            before.unlink()
        before = path
    found["state_distances"].sort(key=lambda row: row["distance"])
    return found


def analyzed(run: Run, measure: Measure, scratch: Path) -> dict[str, Any]:
    """What `lmc analyze` takes for some versions of pretraining, from the store and from files; and its page."""
    phase = run.phases[0]
    steps = [s.step for s in lmc.Store(phase.store).snapshots()]
    every = max(1, len(steps) // 20)
    taken = steps[::every] if (len(steps) - 1) % every == 0 else [*steps[::every], steps[-1]]
    page = (run.args.page or run.folder / "study.html").absolute()
    stored = measure.analyze(phase.store.name, "--every", every, "--force", "--html", page)
    files = [restored(phase.store, step, scratch) for step in taken]
    raw_size = sum(file.stat().st_size for file in files)
    from_files = measure.analyze(*(file.absolute() for file in files))
    found = {"every": every, "versions": len(taken), "raw_size": raw_size, "chain": ANCHOR - 1}
    return found | {"store": stored, "files": from_files}


def measure(run: Run, measure: Measure) -> dict[str, Any]:
    """Everything of the module's documentation."""
    found: dict[str, Any] = {"states": [], "state_distances": [], "distances": [], "engines": []}
    with tempfile.TemporaryDirectory(dir=run.folder) as folder:
        for phase in run.phases:
            scratch = Path(folder) / phase.name
            for key, rows in measured_weights(phase, measure, scratch).items():
                found[key] += rows
            shutil.rmtree(scratch)
            print(f"measured the weights of {phase.name}", flush=True)
        for key, rows in measured_states(run, measure, Path(folder) / "states").items():
            found[key] += rows
        found["analyze"] = analyzed(run, measure, Path(folder) / "analyze")
    return found


def resolved(value: Any) -> Any:
    """The same with results in place of futures."""
    if isinstance(value, concurrent.futures.Future):
        return value.result()
    if isinstance(value, dict):
        return {k: resolved(v) for k, v in value.items()}
    return [resolved(v) for v in value] if isinstance(value, list) else value
