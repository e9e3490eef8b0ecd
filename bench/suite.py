#!/usr/bin/env python3
"""Measures what docs/benchmarks.md and the README show, in bench/results/NAME.json. Started by bench/run.

Each use has cases; a case has a row for each codec.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import allocator

if __name__ == "__main__":
    allocator.keep_memory()

import inputs  # noqa: E402
import origin  # noqa: E402
import peers  # noqa: E402
import report  # noqa: E402
from inputs import DATA, ROOT  # noqa: E402


class Suite:
    """The cases of each use, in the order of the tables."""

    def __init__(self, lmc: str, quick: bool):
        self.lmc = str(Path(lmc).resolve())
        self.machine = origin.machine(self.lmc)
        self.isa = self.machine["isas"][-1]
        self.inputs = inputs.Inputs(quick)
        self.started = time.monotonic()

    def say(self, what: str) -> None:
        print(f"{time.monotonic() - self.started:6.0f} s  {what}", flush=True)

    def measure(self, path: Path, base: Path | None = None, rounds: int = 5, seconds: float = 0.3) -> dict:
        self.say(f"{path.stem}" + (f" given {base.stem}" if base else ""))
        if self.inputs.quick:
            rounds, seconds = 1, 0.0
        return peers.measure(path, base, rounds, seconds, self.lmc, self.isa)

    def run(self) -> list[dict]:
        self.say("models in several precisions, and a large one")
        precisions, large = self.inputs.precisions(), self.inputs.large()
        self.say("fine-tuning")
        states = self.inputs.fine_tuned()
        self.say("measuring")
        # Once in each round: with gigabytes, a round is long enough.
        return [
            {"use": report.ALONE, "what": "bf16, large"} | self.measure(large, rounds=3, seconds=0),
            {"use": report.ALONE, "what": "bf16"} | self.measure(precisions["bf16"]),
            {"use": report.ALONE, "what": "fp32"} | self.measure(precisions["fp32"]),
            self.family(precisions["bf16"], states),
            *self.steps(report.WEIGHTS, self.inputs.weights),
            *self.steps(report.STATE, Path),
            self.directory(precisions),
        ]

    def family(self, base: Path, states: list[list[Path]]) -> dict:
        """A model and its fine-tunes: bytes of all of them, speeds of one given the model."""
        files = [self.inputs.weights(run[-1]) for run in states]
        first, *others = (self.measure(f, base, *((1, 0) if i else ())) for i, f in enumerate(files))
        alone = {r["codec"]: r["size"] for r in self.measure(base, rounds=1, seconds=0)["results"]}
        # What has no way of its own without a base is at its best with zstd or OpenZL.
        alone |= {"zstd --patch-from": alone["zstd -3"], "z4ai": alone["OpenZL"]}
        raw = base.stat().st_size + sum(f.stat().st_size for f in files)
        for row in first["results"]:
            row["size"] = alone[row["codec"]] + sum(
                r["size"] for case in (first, *others) for r in case["results"] if r["codec"] == row["codec"]
            )
            row["ratio"] = row["size"] / raw
        return {"use": report.FAMILY, "what": f"{len(files)} fine-tunes, bf16"} | first | {"raw_size": raw}

    def steps(self, use: str, part: Callable[[Path], Path]) -> list[dict]:
        """One step of fine-tuning, and one of pre-training, whose cuts are too small for speeds."""
        old, new = map(part, self.inputs.fine_tuned()[0])
        tuned = self.measure(new, old, *((3, 0) if use == report.STATE else ()))
        old, new = map(part, self.inputs.cuts())
        cut = self.measure(new, old, 1, 0)
        for r in cut["results"]:
            del r["compress"], r["decompress"]
        what = "fine-tuning, half of the moments 0" if use == report.STATE else "fine-tuning"
        return [{"use": use, "what": what} | tuned, {"use": use, "what": "pre-training"} | cut]

    def directory(self, files: dict[str, Path]) -> dict:
        """A model in several precisions: each file by itself, and all in one snapshot."""
        self.say("a directory in several precisions")
        total: dict[str, int] = {}
        for file in files.values():
            case = peers.measure(file, None, 1, 0, self.lmc, self.isa)
            for r in case["results"]:
                total[r["codec"]] = total.get(r["codec"], 0) + r["size"]
        del total["lmc fast"], total["lmc max"]
        total["lmc default, each file"] = total.pop("lmc default")
        store = self.inputs.folder / "store"
        shutil.rmtree(store, ignore_errors=True)
        source = next(iter(files.values())).parent
        subprocess.run([self.lmc, "-q", "snapshot", "save", store, source, "--step", "1"], check=True)
        total["lmc snapshot"] = sum(f.stat().st_size for f in store.rglob("*") if f.is_file())
        shutil.rmtree(store)
        raw = sum(f.stat().st_size for f in files.values())
        rows = [{"codec": name, "size": size, "ratio": size / raw} for name, size in total.items()]
        return {"use": report.DIRECTORY, "what": ", ".join(files), "raw_size": raw, "rounds": 1, "results": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lmc", required=True)
    parser.add_argument(
        "--quick", action="store_true", help="three minutes, one round; results go to target/bench only"
    )
    parser.add_argument("--machine", default="readme", help="results go to bench/results/NAME.json (readme)")
    args = parser.parse_args()
    if not re.fullmatch(r"[a-z0-9-]+", args.machine):
        parser.error("a machine's name has small letters, digits and hyphens")
    suite = Suite(args.lmc, args.quick)
    commit = suite.machine["commit"]
    if not args.quick and (commit is None or commit.endswith("-dirty")):
        sys.exit(f"the program is of commit {commit}: commit your changes first, so that the page can name it")
    results = {"origin": origin.origin(suite.machine), "cases": suite.run()}
    file = (DATA / "quick" if args.quick else ROOT / "bench" / "results") / f"{args.machine}.json"
    file.write_text(json.dumps(results, indent=1) + "\n")
    suite.say(f"wrote {file}")
    if args.quick:
        print(report.section(results))
        print(report.readme(results))


if __name__ == "__main__":
    main()
