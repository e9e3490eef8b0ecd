#!/usr/bin/env python3
"""How the checkpoints of a run compress: trains a GPT, keeps every step, and measures sizes and times.

    bench/study.py --lmc target/release/lmc --dir run --json run/study.json [--device cuda] [--width 768 …]

Three phases, with the model and the optimizer of examples/pretrain.py: *pretrain*, on files of Python's standard
library, with a warm-up and a cosine decay; *finetune*, from its end, on other text (headers of C++ of the torch
package) at a sixtieth of its learning rate; and *sparse*, from the end of that at a thousandth of it, where most bf16
weights do not change in a step, as in reinforcement learning.

`--dir` gets a store for each phase, with the bf16 weights of every step, at level `default`. States (weights, fp32
masters and both moments of AdamW) of steps that are powers of two, of the step before each (for deltas of one step),
and of the last step of each phase are written as safetensors files, measured, and removed, except for the last two of
each phase. A run that is started again continues: finished phases are not repeated.

`--json` gets the stored bytes of every step; the deltas of the last step's weights against the weights k steps before,
for k = 1, 2, 4 …; the sizes of each state and each of its kinds, alone and given the state of the step before; and, for
the last weights and states, general-purpose codecs (`lmc bench`), with the exclusive or for deltas.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "examples"))
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import lmc  # noqa: E402
import lmc.sync  # noqa: E402
import origin  # noqa: E402
import pretrain  # noqa: E402
import torch  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402

KINDS = ("model", "master", "exp_avg", "exp_avg_sq")
# The most deltas of a chain in a store: a version this far from the last one without a base has no base.
ANCHOR = 64
# Codecs beside lmc, on samples; with a base, those that get the exclusive or.
PEERS = "zstd-1,zstd-3,zstd-19,gzip,bzip2,lz4"
DELTA_PEERS = "lmc-alone,zstd-1,zstd-3,zstd-19,gzip,bzip2,lz4,zstd-patch"
# Of whole states, which are large.
QUICK_PEERS = "zstd-1,zstd-19,bzip2"


class Phase:
    """Steps of training, and the files that are kept of them in a folder."""

    def __init__(self, folder: Path, name: str, first: int, last: int) -> None:
        self.name, self.first, self.last = name, first, last
        self.store, self.states = folder / name, folder / "states"
        self.log = folder / f"{name}.jsonl"

    def path(self, step: int) -> Path:
        return self.states / f"{self.name}-step-{step:06}.safetensors"

    def kept(self) -> list[int]:
        """The steps whose whole state is kept."""
        length = self.last - self.first + 1
        powers = {2**i for i in range(length.bit_length()) if 2**i <= length} if self.name == "pretrain" else set()
        found = {s for p in powers for s in (p - 1, p)} | {length - 1, length}
        return sorted(self.first - 1 + s for s in found if s > 0)

    def done(self) -> bool:
        return self.log.exists() and len(self.log.read_text().splitlines()) == self.last - self.first + 1

    def run(self, training: pretrain.Training, measure: Measure) -> None:
        self.states.mkdir(parents=True, exist_ok=True)
        self.log.unlink(missing_ok=True)
        publisher = lmc.sync.Publisher(self.store, level="default", anchor_every=ANCHOR)
        kept = set(self.kept())
        with self.log.open("w") as log:
            for step in range(self.first, self.last + 1):
                started = time.perf_counter()
                loss = training.step(step)
                trained = time.perf_counter()
                weights = {name: w.detach().cpu() for name, w in training.weights.items()}
                published = publisher.publish(weights, step=step)
                line = {"step": step, "loss": loss, "lr": training.learning_rate(step)}
                line |= {"raw_size": published.raw_size, "new_size": published.new_size}
                line |= {"training_seconds": trained - started, "publish_seconds": published.seconds}
                if step in kept:
                    line["state"] = self.measured_state(training, step, measure)
                log.write(json.dumps(line) + "\n")
                log.flush()
                if step % 32 == 0 or step == self.last:
                    share = 100 * published.new_size / published.raw_size
                    print(f"{self.name} {step:6}   loss {loss:.4f}   {share:.2f} %", flush=True)

    def measured_state(self, training: pretrain.Training, step: int, measure: Measure) -> dict[str, Any]:
        """Sizes of a state, alone and given that of the step before. Only the last two of a phase are kept."""
        self.export(training, step)
        path, before = self.path(step), self.path(step - 1)
        found: dict[str, Any] = {"alone": measure.size(path), "given": None}
        if before.exists():
            found["given"] = measure.size(path, before)
        for old in self.states.glob(f"{self.name}-*"):
            if old != path and not (step == self.last and old == before):
                old.unlink()
        return found

    def export(self, training: pretrain.Training, step: int) -> None:
        groups = training.state(step)
        tensors = {f"{kind}.{name}": t.detach().cpu() for kind in KINDS for name, t in groups[kind].items()}
        save_file(tensors, self.path(step))

    def resume(self, training: pretrain.Training) -> None:
        """Continues from the end of this phase."""
        kept = load_file(self.path(self.last))
        groups = training.state(self.last)
        with torch.no_grad():
            for kind in KINDS:
                for name, t in groups[kind].items():
                    t.copy_(kept[f"{kind}.{name}"])
        training.load({"progress": {"step": self.last}})

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]


def header_text(size: int) -> torch.Tensor:
    """C++ of the torch package, which is wherever this runs."""
    return pretrain.text(size, str(Path(torch.__file__).parent / "include"), "**/*.h")


class Measure:
    """Sizes, by the program, of several files at a time."""

    def __init__(self, program: str, folder: Path) -> None:
        self.program, self.folder = program, folder
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
        rounds = ["--seconds", 0, "--threads", 1, "--isas", self.isa, "--sample", "16MB"]
        (found,) = json.loads(self.call("bench", "--json", *rounds, *options, file))["files"]
        keep = ("codec", "level", "grouped", "given", "sampled", "isa", "ratio")
        rows = [{k: r[k] for k in keep} for r in found["results"]]
        return {"what": what, "results": rows}


def weights_at(store: Path, step: int, folder: Path) -> Path:
    target = folder / f"weights-{step:06}"
    (path,) = lmc.Store(store).restore(target, step)
    return path


def measure(phases: list[Phase], measure: Measure, folder: Path) -> dict[str, Any]:
    """Everything of the module's documentation."""
    pending: dict[str, Any] = {"states": [], "distances": [], "engines": []}
    submit = measure.pool.submit
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        for phase in phases:
            for line in phase.lines():
                if "state" in line:
                    pending["states"].append({"phase": phase.name, "step": line["step"]} | line["state"])
            last = weights_at(phase.store, phase.last, Path(scratch) / phase.name)
            distance = 1
            while phase.last - distance >= phase.first:
                base = weights_at(phase.store, phase.last - distance, Path(scratch) / phase.name)
                row = {"phase": phase.name, "step": phase.last, "distance": distance}
                pending["distances"].append(row | {"size": submit(measure.size, last, base)})
                if distance in (1, 8, 64):
                    pending["engines"].append(submit(measure.engines, f"{phase.name}, Δ {distance}", last, base))
                distance *= 2
            pending["engines"].append(submit(measure.engines, phase.name, last))
        end = phases[0].path(phases[0].last)
        before = phases[0].path(phases[0].last - 1)
        pending["engines"] += [
            submit(measure.engines, "state", end, None, QUICK_PEERS),
            submit(measure.engines, "state, Δ 1", end, before, QUICK_PEERS),
        ]
        return resolved(pending)


def resolved(value: Any) -> Any:
    """The same with results in place of futures."""
    if isinstance(value, concurrent.futures.Future):
        return value.result()
    if isinstance(value, dict):
        return {k: resolved(v) for k, v in value.items()}
    return [resolved(v) for v in value] if isinstance(value, list) else value


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--lmc", required=True, help="the program, built with the feature bench")
    parser.add_argument("--dir", type=Path, required=True, help="what the run keeps")
    parser.add_argument("--json", type=Path, required=True, help="the results")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--steps", type=int, default=512, help="of pretraining; the others have a sixteenth of them")
    parser.add_argument("--lr", type=float, default=6e-4)
    parser.add_argument("--text", type=int, default=64_000_000, help="bytes of text")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def main() -> None:
    args = arguments()
    if args.device == "cpu":
        torch.set_num_threads(len(os.sched_getaffinity(0)))
    torch.use_deterministic_algorithms(True, warn_only=args.device != "cpu")
    args.dir.mkdir(parents=True, exist_ok=True)
    args.schedule, args.warmup = args.steps, max(1, args.steps // 16)
    steps, more = args.steps, max(4, args.steps // 16)
    ends = [steps, steps + more, steps + 2 * more]
    phases = [
        Phase(args.dir, name, first, last)
        for name, first, last in zip(
            ("pretrain", "finetune", "sparse"), (1, ends[0] + 1, ends[1] + 1), ends, strict=True
        )
    ]
    training = pretrain.Training(args, 0, 1)
    parameters = sum(w.numel() for w in training.weights.values())
    texts = {"pretrain": len(training.text)}
    print(f"{parameters:,} parameters, {texts['pretrain']:,} bytes of text", flush=True)
    measure_with = Measure(args.lmc, args.dir)
    rates = {"pretrain": args.lr, "finetune": args.lr / 60, "sparse": args.lr / 1000}
    for number, phase in enumerate(phases):
        if phase.done():
            continue
        if number > 0:
            phases[number - 1].resume(training)
            training.text = header_text(args.text // 8)
            # At a constant rate: the schedule is over.
            training.learning_rate = lambda _, rate=rates[phase.name]: rate  # type: ignore[method-assign]
        phase.run(training, measure_with)
    texts["finetune"] = texts["sparse"] = len(header_text(args.text // 8))
    described = origin.machine(args.lmc)
    results = {
        "model": {"parameters": parameters, "width": args.width, "layers": args.layers, "context": args.context},
        "training": {"batch": args.batch, "lr": rates, "text": texts, "device": device_name(args.device)},
        "anchor_every": ANCHOR,
        "phases": {p.name: [{k: v for k, v in line.items() if k != "state"} for line in p.lines()] for p in phases},
        "origin": origin.origin(described) | {"torch": torch.__version__},
    }
    args.json.write_text(json.dumps(results, indent=1) + "\n")
    print("measuring", flush=True)
    results |= measure(phases, measure_with, args.dir)
    args.json.write_text(json.dumps(results, indent=1) + "\n")
    print(f"wrote {args.json}")


def device_name(device: str) -> str:
    return torch.cuda.get_device_name() if device.startswith("cuda") else "cpu"


if __name__ == "__main__":
    main()
