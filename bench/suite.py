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
        # Sizes alone: one round.
        self.sizes = False

    def say(self, what: str) -> None:
        print(f"{time.monotonic() - self.started:6.0f} s  {what}", flush=True)

    def measure(self, path: Path, base: Path | None = None, rounds: int = 5, seconds: float = 0.3) -> dict:
        self.say(f"{path.stem}" + (f" given {base.stem}" if base else ""))
        if self.inputs.quick or self.sizes:
            rounds, seconds = 1, 0.0
        return peers.measure(path, base, rounds, seconds, self.lmc, self.isa)

    def run(self, alone: bool) -> list[dict] | None:
        """All cases. Each is kept when it is measured: a run of the same commit that was interrupted goes on there.
        `alone`: only the next one; `None` while others are left."""
        self.make_inputs()
        kept = self.inputs.folder / "cases" / str(self.machine["commit"])
        kept.mkdir(parents=True, exist_ok=True)
        cases: list[dict] = []
        measured = False
        for name, measure in self.cases().items():
            file = kept / f"{name}.json"
            if self.inputs.quick or not file.exists():
                if alone and measured:
                    return None
                file.write_text(json.dumps(measure()))
                measured = True
            cases.append(json.loads(file.read_text()))
        return cases

    def again(self, cases: list[dict], names: list[str], sizes: bool) -> list[dict]:
        """The cases of a record with some measured again. Each of these has the origin of its own figures. `sizes`:
        without speeds, where others use the machine."""
        self.sizes = sizes
        found = {case["use"] + case["what"]: case for case in cases}
        for name in names:
            case = self.cases()[name]()
            for row in case["results"] if sizes else ():
                row.pop("compress", None)
                row.pop("decompress", None)
            found[case["use"] + case["what"]] = case | {"origin": origin.origin(self.machine)}
        return list(found.values())

    def make_inputs(self) -> None:
        self.say("models in several precisions, and a large one")
        self.inputs.precisions()
        self.inputs.large()
        self.say("fine-tuning")
        self.inputs.fine_tuned()

    def cases(self) -> dict[str, Callable[[], dict]]:
        """What measures each case, in the order of the tables."""
        files = self.inputs.precisions()
        # Once in each round: with gigabytes, a round is long enough.
        return {
            "large": lambda: self.alone("bf16, large", self.inputs.large(), rounds=2, seconds=0),
            "bf16": lambda: self.alone("bf16", files["bf16"]),
            "fp32": lambda: self.alone("fp32", files["fp32"]),
            "family": lambda: self.family(files["bf16"], self.inputs.fine_tuned()),
            "tuned-weights": lambda: self.tuned(report.WEIGHTS, "fine-tuning", self.inputs.weights),
            "cut-weights": lambda: self.cut(report.WEIGHTS, self.inputs.weights),
            "tuned-state": lambda: self.tuned(
                report.STATE, "fine-tuning, half of the moments 0", Path, rounds=3, seconds=0
            ),
            "cut-state": lambda: self.cut(report.STATE, Path),
            "directory": lambda: self.directory(files),
        }

    def alone(self, what: str, path: Path, **turns: float) -> dict:
        return {"use": report.ALONE, "what": what} | self.measure(path, **turns)

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

    def tuned(self, use: str, what: str, part: Callable[[Path], Path], **turns: float) -> dict:
        """One step of fine-tuning."""
        old, new = map(part, self.inputs.fine_tuned(1)[0])
        return {"use": use, "what": what} | self.measure(new, old, **turns)

    def cut(self, use: str, part: Callable[[Path], Path]) -> dict:
        """One step of pre-training, of a model too small for speeds."""
        old, new = map(part, self.inputs.cuts())
        case = self.measure(new, old, 1, 0)
        for r in case["results"]:
            del r["compress"], r["decompress"]
        return {"use": use, "what": "pre-training"} | case

    def directory(self, files: dict[str, Path]) -> dict:
        """A model in several precisions: each file by itself, all in one snapshot, and given the most precise one."""
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
        packed = self.inputs.folder / "packed"
        shutil.rmtree(packed, ignore_errors=True)
        compress = [self.lmc, "-q", "compress", "-r", source, "-o", packed, "--base", files["fp32"]]
        subprocess.run(compress, check=True)
        total["lmc --base"] = sum(f.stat().st_size for f in packed.rglob("*.lmc"))
        shutil.rmtree(packed)
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
    parser.add_argument("--inputs", action="store_true", help="only makes the files to measure")
    parser.add_argument("--next", action="store_true", help="measures only the next case that is left of this commit")
    parser.add_argument("--again", metavar="CASE,…", help="measures these cases of the record again")
    parser.add_argument("--sizes", action="store_true", help="with --again: no speeds, as others use the machine")
    args = parser.parse_args()
    if not re.fullmatch(r"[a-z0-9-]+", args.machine):
        parser.error("a machine's name has small letters, digits and hyphens")
    suite = Suite(args.lmc, args.quick)
    if args.inputs:
        return suite.make_inputs()
    commit = suite.machine["commit"]
    if not args.quick and (commit is None or commit.endswith("-dirty")):
        sys.exit(f"the program is of commit {commit}: commit your changes first, so that the page can name it")
    if args.again:
        results = json.loads((ROOT / "bench" / "results" / f"{args.machine}.json").read_text())
        results["cases"] = suite.again(results["cases"], args.again.split(","), args.sizes)
        return write(args, suite, results)
    cases = suite.run(args.next)
    if cases is None:
        return suite.say("another case is left")
    results = {"origin": origin.origin(suite.machine), "cases": cases}
    write(args, suite, results)


def write(args: argparse.Namespace, suite: Suite, results: dict) -> None:
    """Keeps the results, for the pages."""
    file = (DATA / "quick" if args.quick else ROOT / "bench" / "results") / f"{args.machine}.json"
    file.write_text(json.dumps(results, indent=1) + "\n")
    suite.say(f"wrote {file}")
    if args.quick:
        print(report.section(results))
        print(report.readme(results))


if __name__ == "__main__":
    main()
