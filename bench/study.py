#!/usr/bin/env python3
"""How the checkpoints of a run compress: trains a GPT, keeps every step, and measures sizes and times.

    bench/study.py --lmc target/release/lmc --dir run --json run/study.json [--device cuda] [--width 768 …]
    bench/study.py … --train        only trains
    bench/study.py … --measure      only measures what was trained, again if it was measured before

Three phases, with the model and the optimizer of examples/pretrain.py: *pretrain*, on Python and other text found on
this machine, with a warm-up and a cosine decay; *finetune*, from its end, on other text (headers of C++ of the torch
package) at a sixtieth of its learning rate; and *sparse*, from the end of that at a thousandth of it, where most bf16
weights do not change in a step, as in reinforcement learning.

`--dir` gets a store for each phase, with the bf16 weights of every step, and the store `states`, with the whole state
(weights, fp32 masters and both moments of AdamW) of some steps: powers of two, the step before each, the last two of
each phase, and those 1, 2, 4 … steps before the last one of pretraining. All at level `default`.

A run that was killed is started again by the same command. It continues from a checkpoint, which is written every 32
steps and at the end of each phase. Steps after it that are in the stores already are trained again, with as many
threads, and have to give the same bytes. The text is kept in `--dir`, too, because packages come and go.

`--json` gets the stored bytes of every step; the deltas of the last step's weights against the weights k steps before,
for k = 1, 2, 4 …, and of the last state likewise; the sizes of each state and each of its kinds, alone and given the
state of the step before; for the last weights and states, general-purpose codecs (`lmc bench`), with the exclusive or
for deltas; and what `lmc analyze` took for some twenty versions of the weights. `--page` gets the page that it made.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "examples"))
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import lmc  # noqa: E402
import lmc.sync  # noqa: E402
import origin  # noqa: E402
import pretrain  # noqa: E402
import safetensors.torch  # noqa: E402
import torch  # noqa: E402

KINDS = ("model", "master", "exp_avg", "exp_avg_sq")
# The most deltas of a chain in a store: a version this far from the last one without a base has no base.
ANCHOR = 64
# The same of states, of which a delta saves little.
STATE_ANCHOR = 16
# For the estimate of disk space: bytes of a state of a parameter, and upper bounds of stored shares.
STATE_BYTES, STATE_SHARE, WEIGHTS_SHARE = 2 + 3 * 4, 0.71, 0.17
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


@dataclass
class Phase:
    """Steps of training on one text with one schedule, and the files that are kept of them in a folder."""

    folder: Path
    name: str
    first: int
    last: int
    # Of all steps; `None` for that of examples/pretrain.py, with a warm-up and a decay.
    rate: float | None

    @property
    def store(self) -> Path:
        return self.folder / self.name

    @property
    def log(self) -> Path:
        return self.folder / f"{self.name}.jsonl"

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in complete_lines(self.log)]

    def cut(self, step: int) -> None:
        """Removes what the log has of the steps after this one."""
        wanted = max(0, min(step, self.last) - self.first + 1)
        lines = complete_lines(self.log)
        if len(lines) < wanted:
            sys.exit(f"{self.log} has {len(lines)} steps, and the checkpoint is {wanted} steps in: it was damaged")
        if self.log.exists() or wanted:
            with atomic(self.log) as file:
                file.write(b"".join(line + b"\n" for line in lines[:wanted]))


def complete_lines(log: Path) -> list[bytes]:
    """Lines of a log; not the last one if the process was killed while writing it."""
    return log.read_bytes().split(b"\n")[:-1] if log.exists() else []


@contextlib.contextmanager
def atomic(path: Path) -> Iterator[BinaryIO]:
    """A file that replaces `path` when it is complete and on the disk."""
    temporary = path.with_name(path.name + ".new")
    with temporary.open("wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def roots() -> dict[str, list[tuple[str, Path, str]]]:
    """Where text is found: for each kind of text the name of a root, its folder, and the names of files in it."""
    system = Path("/usr")
    return {
        "pretrain": [
            ("standard library", Path(sysconfig.get_path("stdlib")), "**/*.py"),
            ("site-packages", Path(sysconfig.get_path("purelib")), "**/*.py"),
            ("/usr/include", system / "include", "**/*.h"),
            ("/usr/share/doc", system / "share/doc", "**/*"),
        ],
        "finetune": [("torch/include", Path(torch.__file__).parent / "include", "**/*.h")],
    }


def gather(size: int, places: list[tuple[str, Path, str]]) -> tuple[bytes, list[dict[str, Any]]]:
    """At least `size` bytes of files, if there are as many, in an order that depends on their names alone; and what
    each root gave."""
    data, found = bytearray(), []
    for name, folder, pattern in places:
        files, before = 0, len(data)
        for path in sorted(folder.glob(pattern)):
            if len(data) >= size:
                break
            parts = path.relative_to(folder).parts
            # The standard library's folder may have packages in it, which are a root of their own. What cannot be read
            # or is no text is not used.
            if {"site-packages", "dist-packages"} & set(parts) or path.is_symlink() or not path.is_file():
                continue
            with contextlib.suppress(OSError):
                content = path.read_bytes()
                if b"\0" not in content and path.suffix not in (".gz", ".xz", ".zst"):
                    data += content
                    files += 1
        found.append({"root": name, "files": files, "bytes": len(data) - before})
    return bytes(data), found


class Text:
    """Text that is trained on, kept in a file, with a description of where it is from."""

    def __init__(self, folder: Path, name: str) -> None:
        self.file, self.described = folder / f"{name}.text", folder / f"{name}.text.json"

    def find(self, size: int, places: list[tuple[str, Path, str]]) -> None:
        data, found = gather(size, places)
        with atomic(self.file) as file:
            file.write(data)
        with atomic(self.described) as file:
            described = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest(), "roots": found}
            file.write(json.dumps(described, indent=1).encode())

    def description(self) -> dict[str, Any]:
        return json.loads(self.described.read_text())

    def load(self) -> torch.Tensor:
        data = bytearray(self.file.read_bytes())
        if hashlib.sha256(data).hexdigest() != self.description()["sha256"]:
            sys.exit(f"{self.file} is not the text that was trained on")
        return torch.frombuffer(data, dtype=torch.uint8)


class Training(pretrain.Training):
    """With a text and a schedule for each phase: a step depends on its number, and on the state before it."""

    def __init__(self, args: argparse.Namespace, phases: list[Phase], texts: dict[str, Text]) -> None:
        super().__init__(args, 0, 1, texts["pretrain"].load())
        self.phases = phases
        more = texts["finetune"].load()
        self.texts = {phase.name: self.text if phase.name == "pretrain" else more for phase in phases}
        if args.compute == "fp32":
            model = self.model
            # Casts are differentiated, too: gradients are those of the bf16 weights.
            self.model = lambda tokens: torch.func.functional_call(
                model, {name: w.float() for name, w in self.weights.items()}, (tokens,)
            )

    def phase(self, step: int) -> Phase:
        return next(phase for phase in self.phases if step <= phase.last)

    def step(self, step: int) -> float:
        self.text = self.texts[self.phase(step).name]
        return super().step(step)

    def learning_rate(self, step: int) -> float:
        rate = self.phase(step).rate
        return super().learning_rate(step) if rate is None else rate

    def tensors(self, step: int, kinds: tuple[str, ...] = KINDS) -> dict[str, torch.Tensor]:
        groups = self.state(step)
        return {f"{kind}.{name}": t.detach().cpu() for kind in kinds for name, t in groups[kind].items()}


class Run:
    """Phases, and the folder that they are kept in."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args, self.folder = args, args.dir
        steps, more = args.steps, max(4, args.steps // 16)
        self.rates = {"pretrain": args.lr, "finetune": args.lr / 60, "sparse": args.lr / 1000}
        self.phases = [
            Phase(self.folder, "pretrain", 1, steps, None),
            Phase(self.folder, "finetune", steps + 1, steps + more, self.rates["finetune"]),
            Phase(self.folder, "sparse", steps + more + 1, steps + 2 * more, self.rates["sparse"]),
        ]
        self.texts = {name: Text(self.folder, name) for name in ("pretrain", "finetune")}
        self.states, self.checkpoint = self.folder / "states", self.folder / "checkpoint.pt"
        # The steps whose whole state is kept.
        self.states_kept: list[int] = []

    @property
    def last(self) -> int:
        return self.phases[-1].last

    def settings(self) -> dict[str, Any]:
        """All that the bytes of a run depend on, besides the text and the number of threads."""
        names = "width layers context batch steps schedule warmup lr seed device text compute".split()
        return {name: getattr(self.args, name) for name in names} | {"torch": str(torch.__version__)}

    def saved(self) -> dict[str, Any] | None:
        """The checkpoint, if there is one; not that of another run."""
        if not self.checkpoint.exists():
            return None
        found = torch.load(self.checkpoint, map_location="cpu", mmap=True, weights_only=True)
        wanted = self.settings()
        other = [f"{k} {found['settings'].get(k)}, not {v}" for k, v in wanted.items() if found["settings"].get(k) != v]
        if other:
            sys.exit(f"{self.folder} has a run with {'; '.join(other)}: use another --dir")
        for name, text in self.texts.items():
            if not text.described.exists() or found["texts"][name] != text.description()["sha256"]:
                sys.exit(f"{text.file} is not the text that the run was trained on")
        return found

    def save(self, training: Training, step: int) -> None:
        with atomic(self.checkpoint) as file:
            torch.save(
                {
                    "step": step,
                    "threads": torch.get_num_threads(),
                    "kept": self.states_kept,
                    "settings": self.settings(),
                    "texts": {name: text.description()["sha256"] for name, text in self.texts.items()},
                    "tensors": training.tensors(step),
                },
                file,
            )

    def kept(self) -> list[int]:
        """The steps whose whole state is kept: fewer distances where they take too much of the disk."""
        pretrain = self.phases[0]
        powers = {2**i for i in range(pretrain.last.bit_length()) if 2**i <= pretrain.last}
        found = {s for p in powers for s in (p - 1, p)} | {s for p in self.phases for s in (p.last - 1, p.last)}
        found |= {pretrain.last - p for p in powers}
        return sorted(s for s in found if s > 0)

    def room(self, parameters: int, decided: list[int] | None) -> tuple[list[int], int]:
        """The states that are kept, and an upper bound of the disk space of the run.

        They are `decided` once a run has begun: a store takes no earlier step later.
        """
        size = int(parameters * STATE_BYTES * STATE_SHARE)
        kept = self.kept() if decided is None else decided
        last = self.phases[0].last
        powers = {s for i in range(last.bit_length()) for s in (2**i - 1, 2**i)}
        # The longest first, that only serve as a base of the last state.
        for step in [s for s in kept if s < last - 1 and s not in powers]:
            if decided is None and len(kept) * size > self.args.states_disk:
                kept.remove(step)
                print(f"the state of step {step} is not kept: states may have {self.args.states_disk / 1e9:g} GB")
        weights = int(self.last * parameters * 2 * WEIGHTS_SHARE)
        # Two checkpoints while one is replaced, and what measuring restores and writes.
        scratch = (2 + 5) * parameters * STATE_BYTES
        return kept, len(kept) * size + weights + scratch

    def has_text(self) -> None:
        """Finds text, if this run has none."""
        for name, text in self.texts.items():
            if not text.described.exists():
                text.find(self.args.text if name == "pretrain" else self.args.text // 8, roots()[name])

    def train(self) -> None:
        """Trains the steps that were not trained yet."""
        found = self.saved()
        if found is None and any(phase.log.exists() for phase in self.phases):
            sys.exit(f"{self.folder} has a run without a checkpoint: use another --dir")
        if found is None and self.args.device == "cpu":
            torch.set_num_threads(self.args.threads or len(os.sched_getaffinity(0)))
        elif found is not None:
            # Sums depend on it.
            torch.set_num_threads(found["threads"])
        self.has_text()
        training = Training(self.args, self.phases, self.texts)
        parameters = sum(w.numel() for w in training.weights.values())
        texts = ", ".join(f"{name} {text.description()['bytes']:,}" for name, text in self.texts.items())
        print(f"{parameters:,} parameters, {torch.get_num_threads()} threads; bytes of text: {texts}", flush=True)
        kept, needed = self.room(parameters, None if found is None else found["kept"])
        self.states_kept = kept
        done = sum(p.stat().st_blocks * 512 for p in self.folder.rglob("*") if p.is_file())
        free = shutil.disk_usage(self.folder).free
        print(
            f"{len(kept)} states; the run takes at most {needed / 1e9:.1f} GB of disk, and has {done / 1e9:.1f} GB;"
            f" {free / 1e9:.1f} GB are free",
            flush=True,
        )
        if found is None:
            if free < needed:
                sys.exit("the disk has too little space")
            # So that all that was decided is kept before the first step.
            self.save(training, 0)
            step = 0
        else:
            if free + done < needed:
                sys.exit("the disk has too little space")
            step = found["step"]
            groups = training.state(step)
            with torch.no_grad():
                for kind in KINDS:
                    for name, t in groups[kind].items():
                        t.copy_(found["tensors"][f"{kind}.{name}"])
            training.load({"progress": {"step": step}})
            print(f"continues after step {step}", flush=True)
            del found
        for phase in self.phases:
            phase.cut(step)
        states = Kept(self.states, STATE_ANCHOR)
        for phase in self.phases:
            if step < phase.last:
                self.run(phase, training, step + 1, states, set(kept))
                step = phase.last

    def run(self, phase: Phase, training: Training, first: int, states: Kept, kept: set[int]) -> None:
        weights = Kept(phase.store, ANCHOR)
        with phase.log.open("ab") as log:
            for step in range(first, phase.last + 1):
                started = time.perf_counter()
                loss = training.step(step)
                trained = time.perf_counter()
                published = weights.publish({name: w.detach().cpu() for name, w in training.weights.items()}, step)
                line = {"step": step, "loss": loss, "lr": training.learning_rate(step)} | published
                if step in kept:
                    states.publish(training.tensors(step), step)
                line |= {"training_seconds": trained - started}
                log.write(json.dumps(line).encode() + b"\n")
                log.flush()
                if step % self.args.checkpoint_every == 0 or step == phase.last:
                    share = 100 * line["new_size"] / line["raw_size"]
                    print(f"{phase.name} {step:6}   loss {loss:.4f}   {share:.2f} %", flush=True)
                    # The log must not be behind the checkpoint after a power cut.
                    os.fsync(log.fileno())
                    self.save(training, step)
        weights.publisher.close()


class Kept:
    """A store that may have versions already, which steps that are trained again have to equal."""

    def __init__(self, path: Path, anchor: int) -> None:
        self.publisher = lmc.sync.Publisher(path, level="default", anchor_every=anchor)
        self.had = {s.step: s for s in self.publisher.store.snapshots()}

    def publish(self, tensors: dict[str, torch.Tensor], step: int) -> dict[str, Any]:
        """Publishes a version, or compares it with the one that the store has; what the log says about it."""
        snapshot = self.had.get(step)
        if snapshot is None:
            published = self.publisher.publish(tensors, step=step)
            sizes = {"raw_size": published.raw_size, "new_size": published.new_size}
            return sizes | {"publish_seconds": published.seconds}
        store = self.publisher.store
        reader = store.open_snapshot(step)
        (file,) = (f.name for f in reader.files)
        stored = safetensors.torch.load(reader.read_file(file))
        differ = [name for name in tensors.keys() | stored.keys() if not same(tensors.get(name), stored.get(name))]
        if differ:
            sys.exit(
                f"step {step}, trained again from the checkpoint, is not what {store.location} has: {len(differ)} of"
                f" {len(tensors)} tensors differ, {min(differ)} is one. Training was not deterministic on this machine,"
                " or files were changed; the run has to begin again in another --dir."
            )
        return {"raw_size": snapshot.raw_size, "new_size": snapshot.new_size, "publish_seconds": None}


def same(a: torch.Tensor | None, b: torch.Tensor | None) -> bool:
    """Whether the bytes are the same, those of NaN, too."""
    if a is None or b is None or a.dtype != b.dtype or a.shape != b.shape:
        return False
    return torch.equal(a.contiguous().flatten().view(torch.uint8), b.contiguous().flatten().view(torch.uint8))


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
        rounds = ["--seconds", self.seconds, "--threads", 1, "--isas", self.isa, "--sample", "16MB"]
        (found,) = json.loads(self.call("bench", "--json", *rounds, *options, file))["files"]
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


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--lmc", required=True, help="the program, built with the feature bench")
    parser.add_argument("--dir", type=Path, required=True, help="what the run keeps")
    parser.add_argument("--json", type=Path, required=True, help="the results")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--train", action="store_true", help="do not measure")
    only.add_argument("--measure", action="store_true", help="do not train")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("--batch", type=int, default=8)
    # One more than a power of two, for deltas of 1 to 512 steps.
    parser.add_argument("--steps", type=int, default=513, help="of pretraining; the others have a sixteenth of them")
    parser.add_argument("--schedule", type=int, help="steps over which the learning rate falls; by default --steps - 1")
    parser.add_argument("--warmup", type=int, default=32, help="steps in which it rises first")
    parser.add_argument("--lr", type=float, default=6e-4)
    parser.add_argument("--text", type=int, default=64_000_000, help="bytes of text")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, help="of a new run; by default as many as there are cores")
    parser.add_argument("--page", type=Path, help="of lmc analyze; by default in --dir")
    parser.add_argument("--seconds", type=float, default=0.5, help="of each codec whose speed is measured")
    parser.add_argument("--checkpoint-every", type=int, default=32, metavar="STEPS", help="to continue from")
    parser.add_argument("--states-disk", type=float, default=15e9, help="bytes that states may take in the store")
    parser.add_argument("--compute", choices=["bf16", "fp32"], help="by default what is fast here")
    args = parser.parse_args()
    if args.schedule is None:
        args.schedule = max(1, args.steps - 1)
    if args.schedule < args.steps - 1:
        parser.error(f"--schedule {args.schedule}: the learning rate would rise again in {args.steps} steps")
    if not args.compute:
        # Without instructions for bf16, PyTorch multiplies such matrices a hundred times slower than those of fp32.
        slow = args.device == "cpu" and not torch.ops.mkldnn._is_mkldnn_bf16_supported()
        args.compute = "fp32" if slow else "bf16"
    return args


def main() -> None:
    args = arguments()
    torch.use_deterministic_algorithms(True, warn_only=args.device != "cpu")
    args.dir.mkdir(parents=True, exist_ok=True)
    run = Run(args)
    with (args.dir / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            sys.exit(f"another process works in {args.dir}")
        if not args.measure:
            run.train()
        if not args.train:
            write(run)


def write(run: Run) -> None:
    """Measures what was trained."""
    args, saved = run.args, run.saved()
    if saved is None or saved["step"] < run.last:
        sys.exit(f"{args.dir} has no run that is complete: it is trained without --measure")
    parameters = sum(t.numel() for name, t in saved["tensors"].items() if name.startswith("model."))
    threads = saved["threads"]
    del saved
    texts = {name: text.description() for name, text in run.texts.items()}
    measure_with = Measure(args.lmc, args.dir, args.seconds)
    results = {
        "model": {"parameters": parameters, "width": args.width, "layers": args.layers, "context": args.context},
        "training": {
            "batch": args.batch,
            "lr": run.rates,
            "text": {phase.name: texts.get(phase.name, texts["finetune"])["bytes"] for phase in run.phases},
            "text_roots": {name: text["roots"] for name, text in texts.items()},
            "threads": threads,
            "device": device_name(args.device),
            "compute": args.compute,
        },
        "anchor_every": ANCHOR,
        "phases": {phase.name: phase.lines() for phase in run.phases},
        "origin": origin.origin(origin.machine(args.lmc)) | {"torch": torch.__version__},
    }
    print("measuring", flush=True)
    results |= measure(run, measure_with)
    with atomic(args.json) as file:
        file.write((json.dumps(results, indent=1) + "\n").encode())
    print(f"wrote {args.json}")


def device_name(device: str) -> str:
    return torch.cuda.get_device_name() if device.startswith("cuda") else "cpu"


if __name__ == "__main__":
    main()
