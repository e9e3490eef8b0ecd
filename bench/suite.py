#!/usr/bin/env python3
"""Runs every measurement of docs/benchmarks.md, a JSON file each, and writes the page. Started by bench/run."""

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import time
from pathlib import Path

import delta_inputs
import inputs
import plot
import process
import report
import tensors
from inputs import DATA, ROOT

# Peers whose sizes are listed for every input; lz4, snappy and zstd-3 would add nothing.
SIZE_PEERS = "zstd-1,zstd-19,gzip,bzip2"
DELTA_PEERS = "lmc-alone,lmc-xor,zstd-1,zstd-19,bzip2,zstd-patch"
GB = 1_000_000_000


class Suite:
    """The steps, in the order in which they run; each writes `<name>.json`."""

    def __init__(self, lmc: str, quick: bool, out: Path):
        self.lmc = lmc
        self.quick = quick
        self.out = out
        self.seconds = 0.05 if quick else 1.0
        self.rounds = 2 if quick else 7
        self.inputs = inputs.prepare()

    def path(self, name: str) -> Path:
        return next(i.path for i in self.inputs if i.name == name)

    def bench(self, *args: object) -> dict:
        """`lmc bench --json`, decoded."""
        command = [self.lmc, "bench", "--json", *map(str, args)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        measured = json.loads(done.stdout)
        # Names instead of paths: they are clearer, and reveal no folders of this machine.
        for file in measured["files"]:
            for i in self.inputs:
                file["file"] = file["file"].replace(str(i.path), i.name)
        return measured

    def best_isa(self) -> str:
        return json.loads(self._machine)["isas"][-1]

    def elements(self, name: str, dtype: str) -> int:
        """Bytes of a dtype in an input."""
        return tensors.streams(self.path(name))[dtype].nbytes

    def machine(self) -> dict:
        probe = self.bench("--seconds", 0, "--threads", 1, "--peers", "none", self.path("testdata minilm-f32"))
        described = probe["machine"]
        described["python"] = platform.python_version()
        described["zstd_program"] = subprocess.run(
            ["zstd", "--version"], check=True, stdout=subprocess.PIPE, text=True
        ).stdout.strip("* \n")
        described["folder"] = (
            subprocess.run(["df", "--output=fstype,source", str(DATA)], check=True, stdout=subprocess.PIPE, text=True)
            .stdout.splitlines()[-1]
            .split()
        )
        described["date"] = time.strftime("%Y-%m-%d", time.gmtime())
        described["quick"] = self.quick
        described["bench_data"] = bool(os.environ.get("BENCH_DATA"))
        self._machine = json.dumps(described)
        return described

    def speed(self) -> list[dict]:
        """Every level, ISA and thread count, and every peer, on 90 MB of bf16 and of fp32."""
        common = ["--seconds", self.seconds, "--threads", "1,2"]
        size = 2 * self.elements("minilm bf16", "BF16") if not self.quick else 8_000_000
        return [
            self.bench(*common, "--size", size, self.path("minilm bf16")),
            self.bench(*common, "--size", size, self.path("minilm fp32")),
        ]

    def buffers(self) -> list[dict]:
        """The best ISA on 1 GB, which no cache holds."""
        common = ["--seconds", 4 * self.seconds, "--threads", "1,2", "--isas", self.best_isa(), "--peers", "none"]
        size = GB if not self.quick else GB // 20
        return [self.bench(*common, "--size", size, self.path(f"minilm {t}")) for t in ("bf16", "fp32")]

    def breakdown(self) -> list[dict]:
        """Hashing, choosing, table building, page faults."""
        common = [
            "--seconds",
            self.seconds,
            "--threads",
            1,
            "--isas",
            self.best_isa(),
            "--peers",
            "none",
            "--breakdown",
        ]
        return [self.bench(*common, self.path(f"minilm {t}")) for t in ("bf16", "fp32")]

    def small(self) -> list[dict]:
        """10,000 small tensors and one large one, in many turns: a single run varies more than the effect."""
        common = ["--seconds", self.seconds / 4, "--threads", 1, "--isas", self.best_isa(), "--peers", "none"]
        turns = 3 * self.rounds
        return [self.bench(*common, self.path("10,000 tensors"), self.path("one tensor")) for _ in range(turns)]

    def peers(self) -> dict:
        """ZipNN and OpenZL, in a process with an allocator that keeps memory."""
        out = self.out / "peers.json"
        size = 2 * self.elements("minilm bf16", "BF16") if not self.quick else 8_000_000
        files = [self.path("minilm bf16"), self.path("minilm fp32")]
        options = ["--lmc", self.lmc, "--rounds", self.rounds, "--seconds", self.seconds / 4, "--size", size]
        command = [sys.executable, ROOT / "bench" / "peers.py", *options, "--folder", DATA, "--json", out, *files]
        subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL)
        return json.loads(out.read_text())

    def sizes(self) -> list[dict]:
        """Sizes of every input by every codec; one round each, so their speeds mean little."""
        out = self.out / "sizes.json"
        chosen = [i for i in self.inputs if not self.quick or i.path.stat().st_size < 8_000_000]
        files = [str(i.path) for i in chosen]
        command = [sys.executable, str(ROOT / "bench" / "peers.py"), "--sizes", "--json", str(out), *files]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        packages = json.loads(out.read_text())["sizes"]
        common = ["--seconds", 0, "--threads", 1, "--isas", self.best_isa(), "--peers", SIZE_PEERS]
        results = []
        for i in chosen:
            measured = self.bench(*common, i.path)["files"][0]
            measured |= {"name": i.name, "what": i.what, "packages": packages[str(i.path)]}
            results.append(measured)
        return results

    def deltas(self) -> dict:
        """Sizes of every pair of files by every codec; speeds of those of one dtype; both beside Python packages."""
        pairs = delta_inputs.prepare(self.quick)
        # Of each related pair of one dtype; of fine-tuned and larger models the weights alone.
        speed = [p for p in pairs if p.dtype and p.kind != "unrelated"]
        speed = [p for p in speed if p.kind in ("training", "made up") or p.dtype == "BF16"]
        weights = [p for p in speed if p.kind != "made up" and p.dtype == "BF16"]
        peers = [*weights, *(p for p in speed if p.kind == "made up" and " 1 %" in p.name)]
        best = ["--isas", self.best_isa()]
        return {
            "sizes": self.delta_sizes(pairs, ["--seconds", 0, "--threads", 1, *best]),
            "speed": [self.delta_speed(p, 90_000_000, ["--threads", "1,2", *best]) for p in speed],
            "buffers": [self.delta_speed(p, GB, ["--threads", "1,2", *best]) for p in weights[:2]],
            "isas": [self.delta_speed(p, 90_000_000, ["--threads", 1]) for p in (weights or speed)[:1]],
            "peers": self.delta_peers(peers),
        }

    def delta(self, pair: delta_inputs.Pair, *args: object) -> dict:
        """`lmc bench --base` on a pair."""
        measured = self.bench(*args, "--base", pair.old, pair.new)["files"][0]
        described = {"name": pair.name, "what": pair.what, "kind": pair.kind}
        return measured | described | {"file": pair.name, "bases": [pair.old.name]}

    def delta_sizes(self, pairs: list[delta_inputs.Pair], options: list[object]) -> list[dict]:
        """One round each, whose speeds mean nothing."""
        packages = self.beside_packages(pairs, "--sizes")
        found = []
        for pair, sizes in zip(pairs, packages, strict=True):
            measured = self.delta(pair, *options, "--peers", DELTA_PEERS)
            for r in measured["results"]:
                del r["compress"], r["decompress"]
            found.append(measured | {"packages": sizes, "changed": pair.changed()})
        return found

    def delta_speed(self, pair: delta_inputs.Pair, size: int, options: list[object]) -> dict:
        """Every level on a pair's elements, repeated to a size."""
        size = size if not self.quick else size // 20
        measured = self.delta(pair, "--seconds", self.seconds, *options, "--peers", "none", "--size", size)
        return measured | {"changed": pair.changed()}

    def delta_peers(self, pairs: list[delta_inputs.Pair]) -> list[dict]:
        rounds = ["--rounds", 2 if self.quick else 5, "--seconds", self.seconds / 4, "--size", 45_000_000]
        measured = self.beside_packages(pairs, *rounds)
        return [m | {"file": p.name} for m, p in zip(measured, pairs, strict=True)]

    def beside_packages(self, pairs: list[delta_inputs.Pair], *options: object) -> list:
        """bench/delta_peers.py on pairs."""
        out = self.out / "deltas.json"
        script = ROOT / "bench" / "delta_peers.py"
        files = [f for p in pairs for f in (p.old, p.new)]
        command = [sys.executable, script, "--lmc", self.lmc, "--folder", DATA, "--json", out, *options, *files]
        subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL)
        return json.loads(out.read_text())

    def process(self) -> list[dict]:
        """Whole processes, durable."""
        names = ["minilm bf16"] if self.quick else ["minilm bf16", "synthetic bf16"]
        return [process.measure(self.path(n), n, self.rounds, self.lmc, DATA) for n in names]


def note_later(machine: Path, step: str, commit: str | None) -> None:
    """Notes that a step was measured with another commit than the rest."""
    described = json.loads(machine.read_text())
    described.setdefault("later", {})[step] = commit
    machine.write_text(json.dumps(described, indent=1) + "\n")


STEPS = ["machine", "speed", "buffers", "breakdown", "small", "peers", "sizes", "deltas", "process"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lmc", required=True)
    parser.add_argument("--quick", action="store_true", help="seconds, not minutes; results go to target/bench only")
    parser.add_argument("--only", default="", help=f"steps to run again, of {', '.join(STEPS)}")
    where = "bench/results/NAME, docs/benchmarks-NAME.md"
    parser.add_argument("--machine", default="", help=f"another machine's name: results go to {where}")
    parser.add_argument("--report", action="store_true", help="write the page from the results that are there")
    args = parser.parse_args()
    only = [s for s in args.only.split(",") if s]
    if unknown := set(only) - set(STEPS):
        parser.error(f"no step {', '.join(sorted(unknown))}; there are {', '.join(STEPS)}")

    if not re.fullmatch(r"[a-z0-9-]*", args.machine):
        parser.error("a machine's name has small letters, digits and hyphens")
    out = DATA / "quick" if args.quick else ROOT / "bench" / "results" / args.machine
    suffix = f"-{args.machine}" if args.machine else ""
    page = (out if args.quick else ROOT / "docs") / f"benchmarks{suffix}.md"
    out.mkdir(parents=True, exist_ok=True)
    if not args.report:
        suite = Suite(args.lmc, args.quick, out)
        machine: dict = {}
        started = time.monotonic()
        for step in STEPS:
            if only and step not in only and step != "machine":
                continue
            print(f"{time.monotonic() - started:6.0f} s  {step}", flush=True)
            result = getattr(suite, step)()
            if step == "machine":
                machine = result
            if step != "machine" or not only:
                (out / f"{step}.json").write_text(json.dumps(result, indent=1) + "\n")
            if step != "machine" and only:
                note_later(out / "machine.json", step, machine["commit"])
        print(f"{time.monotonic() - started:6.0f} s  done")
    # bench/cores.py, bench/store.py, bench/follow.py, bench/checkpoints.py and bench/python.py write their own.
    apart = ("cores", "store", "follow", "checkpoints", "python")
    there = [*STEPS, *(step for step in apart if (out / f"{step}.json").exists())]
    results = {step: json.loads((out / f"{step}.json").read_text()) for step in there}
    plot.draw(results, page.with_suffix(".svg"))
    page.write_text(report.page(results, suffix))
    if not args.quick and not args.machine:
        report.update_readme(results, ROOT / "README.md")
    print(f"wrote {page}")


if __name__ == "__main__":
    main()
