"""The training of bench/study.py: its phases, its text, and the stores that it keeps."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import shutil
import sys
import sysconfig
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "examples"))
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import lmc.sync  # noqa: E402
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
