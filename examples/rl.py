"""Trains a small policy by reinforcement learning: one process trains, another generates with the published weights.

    python examples/rl.py --dir run                                         # versions in the directory run/store
    python examples/rl.py --dir run --store s3://bucket/runs/12             # in a bucket

The policy, an untrained GPT, learns to sort digits. The reward of an answer is the share of its digits that are right.
GRPO (arXiv:2402.03300) raises the probability of answers that are better than others for the same prompt.

After each step the trainer publishes the weights as a version of a store. The generator follows the store, checks that
its weights have the published hash, and returns its batches as files. Halfway the trainer kills the generator and
starts another one, which continues from the store (`--kill`). The next version is prepared while the generator works:
each step learns from answers of the weights before the last (`--lag`). So the results depend only on the seed, not on
which process is faster, nor on whether a process was killed.

The lines that send weights with lmc are marked with `# lmc`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, TypeVar

import lmc  # lmc
import lmc.sync  # lmc
import torch
from lmc.torch import safe_open, save_file
from pretrain import GPT
from torch import Tensor, nn

T = TypeVar("T")
#: The first of the ten tokens that an answer may have, and the one between prompt and answer.
ZERO, EQUALS = ord("0"), ord("=")


class Sorting:
    """The task: repeat digits, given in a random order, in ascending order."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.digits, self.prompts, self.group, self.seed = args.digits, args.prompts, args.group, args.seed

    @property
    def length(self) -> int:
        """Tokens of a prompt and its answer."""
        return 2 * self.digits + 1

    def batch(self, policy: nn.Module, number: int) -> dict[str, Tensor]:
        """Answers to random prompts, `group` to each: tokens, logarithms of their probabilities, and rewards."""
        draw = torch.Generator().manual_seed(self.seed * 1_000_003 + number)
        digits = torch.randint(10, (self.prompts, self.digits), generator=draw).repeat_interleave(self.group, 0)
        tokens = torch.cat([digits + ZERO, torch.full((len(digits), 1), EQUALS)], 1)
        chosen = []
        for _ in range(self.digits):
            logprobs = answers(policy(tokens)[:, -1])
            digit = torch.multinomial(logprobs.exp(), 1, generator=draw)
            chosen.append(logprobs.gather(1, digit))
            tokens = torch.cat([tokens, digit + ZERO], 1)
        right = tokens[:, self.digits + 1 :] - ZERO == digits.sort(1).values
        return {
            "tokens": tokens.to(torch.uint8),
            "logprobs": torch.cat(chosen, 1),
            "rewards": right.float().mean(1),
        }

    def loss(self, policy: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
        """The loss of GRPO. The ratio corrects for the age of the weights that generated the answers."""
        rewards = batch["rewards"].view(self.prompts, self.group)
        advantages = (rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, keepdim=True) + 1e-2)
        advantages = advantages.view(-1, 1)
        tokens = batch["tokens"].long()
        logprobs = answers(policy(tokens[:, :-1])[:, self.digits :])
        chosen = logprobs.gather(2, tokens[:, self.digits + 1 :, None] - ZERO)[..., 0]
        ratio = (chosen - batch["logprobs"]).exp()
        return -torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages).mean()


def answers(logits: Tensor) -> Tensor:
    """Logarithms of the probabilities of the ten digits: nothing else may be answered."""
    return logits[..., ZERO : ZERO + 10].log_softmax(-1)


def digest(weights: Mapping[str, Tensor]) -> str:
    """The hash of all weights."""
    hashed = hashlib.sha256()
    for name, tensor in sorted(weights.items()):
        hashed.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        hashed.update(tensor.contiguous().view(-1).view(torch.uint8).numpy())
    return hashed.hexdigest()


def set_up(args: argparse.Namespace) -> None:
    """The setup of every process of a run."""
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(args.seed)


def await_result(get: Callable[[], T | None], alive: Callable[[], bool], what: str, interval: float) -> T:
    """Calls a function until it returns something. Ends the process if the other one died."""
    while True:
        # Asked before the call, which then finds everything that the process wrote before it ended.
        goes_on = alive()
        found = get()
        if found is not None:
            return found
        if not goes_on:
            sys.exit(f"rl.py: the process that makes {what} ended")
        time.sleep(interval)


# The generator


class Weights:
    """Weights in memory that follow the store."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.location = args.store
        self.store: lmc.Store | None = None
        self.follower: lmc.sync.Follower | None = None
        self.tensors: dict[str, Tensor] = {}
        #: The version that they hold, and the hash that they have.
        self.version, self.digest = -1, ""
        self.seconds = {"stage": 0.0, "commit": 0.0}
        # One thread at a time uses the follower: this one, from `prepare` to `get`.
        self.pool = ThreadPoolExecutor(1)
        self.next: Future[tuple[lmc.store.Snapshot, lmc.sync.Update, float]] | None = None

    def get(self, version: int) -> None:
        """Moves the weights to a version. Nothing may use them meanwhile."""
        if version == self.version:
            return
        if self.follower is None:
            snapshot = self.await_version(version)
            started = time.perf_counter()
            self.follower = lmc.sync.Follower(self.store)  # lmc
            self.follower.load(snapshot)  # lmc
            self.tensors = self.follower.tensors
            self.seconds = {"stage": time.perf_counter() - started, "commit": 0.0}
        else:
            self.prepare(version)
            snapshot, update, seconds = self.next.result()
            self.next = None
            started = time.perf_counter()
            self.follower.commit(update)  # lmc
            self.seconds = {"stage": seconds, "commit": time.perf_counter() - started}
        self.version, self.digest = version, digest(self.tensors)
        if self.digest != snapshot.metadata["sha256"]:
            sys.exit(f"rl.py: version {version} has the hash {snapshot.metadata['sha256']}, and not {self.digest}")

    def prepare(self, version: int) -> None:
        """Prepares a version in the background, as soon as it is published. The weights may be used meanwhile."""
        if self.next is None and version != self.version:
            self.next = self.pool.submit(self.stage, version)

    def stage(self, version: int) -> tuple[lmc.store.Snapshot, lmc.sync.Update, float]:
        snapshot = self.await_version(version)
        started = time.perf_counter()
        return snapshot, self.follower.stage(snapshot), time.perf_counter() - started  # lmc

    def await_version(self, version: int) -> lmc.store.Snapshot:
        trainer = multiprocessing.parent_process()
        return await_result(lambda: self.find(version), trainer.is_alive, f"version {version}", 0.02)

    def find(self, version: int) -> lmc.store.Snapshot | None:
        try:
            self.store = self.store or lmc.Store(self.location)  # lmc
            return self.store.find(version)  # lmc
        except lmc.NotFoundError:
            return None


def generate(args: argparse.Namespace) -> None:
    """Generates the batches that are missing, each with the weights of one version."""
    set_up(args)
    task, weights = Sorting(args), Weights(args)
    policy = GPT(args.width, args.layers, task.length)
    missing = (n for n in range(1, args.steps + 1) if not batch_file(args, n).exists())
    for number in missing:
        weights.get(version_for(args, number))
        with torch.no_grad():
            # CPUs are slow with bf16.
            for name, parameter in policy.named_parameters():
                parameter.copy_(weights.tensors[name])
            if number < args.steps:
                weights.prepare(version_for(args, number + 1))
            batch = task.batch(policy, number)
        about = {
            "version": version_for(args, number),
            "sha256": weights.digest,
            "generator": os.getpid(),
            **weights.seconds,
        }
        # The file appears when it is complete.
        save_file(batch, batch_file(args, number), metadata={"about": json.dumps(about)})


def version_for(args: argparse.Namespace, batch: int) -> int:
    """The version whose weights generate a batch."""
    return max(0, batch - 1 - args.lag)


def batch_file(args: argparse.Namespace, number: int) -> Path:
    return Path(args.dir) / "batches" / f"{number:06}.lmc"


# The trainer


class Publishing:
    """The versions of a run."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.publisher = lmc.sync.Publisher(args.store)  # lmc
        self.digests: list[str] = []

    def publish(self, policy: nn.Module) -> lmc.sync.Published:
        """Publishes weights as the next version, in bf16."""
        weights = {name: p.detach().bfloat16() for name, p in policy.named_parameters()}
        self.digests.append(digest(weights))
        metadata = {"sha256": self.digests[-1]}
        return self.publisher.publish(weights, step=len(self.digests) - 1, metadata=metadata)  # lmc


def start(args: argparse.Namespace) -> BaseProcess:
    """A generator."""
    process = multiprocessing.get_context("spawn").Process(target=generate, args=(args,), daemon=True)
    process.start()
    return process


def received(args: argparse.Namespace, number: int, generator: BaseProcess) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """A batch, and the report of its generator."""
    path = batch_file(args, number)
    await_result(lambda: path.exists() or None, generator.is_alive, f"batch {number}", 0.002)
    with safe_open(path, "pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, json.loads(file.metadata()["about"])


def train(args: argparse.Namespace) -> None:
    set_up(args)
    task = Sorting(args)
    policy = GPT(args.width, args.layers, task.length)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=args.lr, betas=(0.9, 0.95), weight_decay=0.0)
    versions = Publishing(args)
    size = versions.publish(policy).raw_size
    print(f"{size:,} bytes of weights in bf16, versions in {args.store}", flush=True)
    generator = start(args)
    steps: list[dict[str, Any]] = []
    for step in range(1, args.steps + 1):
        batch, about = received(args, step, generator)
        if about["sha256"] != versions.digests[about["version"]]:
            sys.exit(f"rl.py: batch {step} is of other weights than version {about['version']}")
        for group in optimizer.param_groups:
            group["lr"] = args.lr * (1 - (step - 1) / args.steps)
        optimizer.zero_grad()
        task.loss(policy, batch).backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
        published = versions.publish(policy)
        steps.append(
            {
                "step": step,
                "reward": batch["rewards"].mean().item(),
                **about,
                "bytes": published.new_size + published.document_size,
                "density": published.density,
                "publish": published.seconds,
            }
        )
        if args.log:
            with open(args.log, "a") as log:
                log.write(json.dumps(steps[-1] | {"published": versions.digests[step]}) + "\n")
        if step % args.every == 0 or step in (1, args.steps):
            say(steps[-1])
        if step == args.kill and step < args.steps:
            generator.kill()
            generator.join()
            print(f"process {generator.pid} was killed; another one goes on from the store", flush=True)
            generator = start(args)
    generator.join()
    summary(steps, size)


def say(step: dict[str, Any]) -> None:
    """Prints a step. Staging ran in another process, mostly while this one trained."""
    changed = "" if step["density"] is None else f", {100 * step['density']:.0f} % changed"
    print(
        f"step {step['step']:4}   reward {step['reward']:.3f} of version {step['version']} in process"
        f" {step['generator']} (staged in {1e3 * step['stage']:.1f} ms, committed in {1e3 * step['commit']:.2f} ms)"
        f"   published: {step['bytes']:,} bytes{changed}, {1e3 * step['publish']:.0f} ms",
        flush=True,
    )


def summary(steps: list[dict[str, Any]], size: int) -> None:
    def mean(key: str, of: list[dict[str, Any]]) -> float:
        return statistics.fmean(step[key] for step in of)

    def median(key: str) -> str:
        return f"{1e3 * statistics.median(step[key] for step in steps):.1f} ms"

    first, last = steps[:5], steps[-5:]
    print(f"reward: {mean('reward', first):.3f} in the first steps, {mean('reward', last):.3f} in the last")
    print(f"stored: {mean('bytes', steps):,.0f} of {size:,} bytes a version, {mean('bytes', last):,.0f} of the last")
    print(f"medians: published in {median('publish')}, staged in {median('stage')}, committed in {median('commit')}")
    processes = len({step["generator"] for step in steps})
    print(f"{len(steps)} batches of {processes} processes: the weights of each had the hash that was published")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--dir", required=True, help="a folder for the run; what was generated goes to its `batches`")
    parser.add_argument("--store", help="where versions go: a directory or s3://BUCKET/PREFIX (default: DIR/store)")
    parser.add_argument("--steps", type=int, default=60, help="train this many steps (default: %(default)s)")
    parser.add_argument("--kill", type=int, help="step after which to kill the generator; 0 for none (default: half)")
    parser.add_argument("--lag", type=int, default=1, help="steps that weights may be behind (default: %(default)s)")
    parser.add_argument("--digits", type=int, default=4, help="digits to sort (default: %(default)s)")
    parser.add_argument("--prompts", type=int, default=32, help="prompts of a step (default: %(default)s)")
    parser.add_argument("--group", type=int, default=16, help="answers to each prompt (default: %(default)s)")
    parser.add_argument("--width", type=int, default=64, help="width of the policy (default: %(default)s)")
    parser.add_argument("--layers", type=int, default=2, help="blocks of the policy (default: %(default)s)")
    parser.add_argument(
        "--lr", type=float, default=4e-3, help="learning rate, which falls to zero (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--every", type=int, default=5, help="print every k-th step (default: %(default)s)")
    parser.add_argument("--log", metavar="FILE", help="append a line of JSON for each step to this file")
    args = parser.parse_args()
    for name in ("steps", "digits", "prompts", "width", "layers", "every"):
        if getattr(args, name) < 1:
            parser.error(f"--{name} must be at least 1")
    if args.group < 2:
        parser.error("--group must be at least 2: answers are compared with others of the same prompt")
    if args.lag < 0:
        parser.error("--lag must not be negative")
    args.store = args.store or str(Path(args.dir) / "store")
    args.kill = args.steps // 2 if args.kill is None else args.kill
    batches = batch_file(args, 1).parent
    if batches.exists():
        parser.error(f"{batches} exists, of another run: choose another --dir")
    batches.mkdir(parents=True)
    return args


if __name__ == "__main__":
    train(arguments())
