"""Trains a small GPT on text found on this machine, and keeps a snapshot of every k-th step.

    python examples/pretrain.py --dir run                                   # one process
    torchrun --nproc-per-node 2 examples/pretrain.py --dir run              # FSDP2, over gloo
    … --resume                                                              # resumes from the newest complete snapshot

Weights are bf16, and AdamW works on their fp32 masters. A snapshot has both, and both moments. The results of a run
depend only on its seed, its number of processes and, on a CPU, its number of threads; a run that was killed and resumed
has the same losses as an uninterrupted one.

The three lines that keep snapshots with lmc are marked with `# lmc`. `--format dcp` keeps them as PyTorch does, for
comparison, and `--export DIR` also writes the state as safetensors files.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import multiprocessing
import os
import sys
import sysconfig
import time
from pathlib import Path
from typing import Any, NoReturn

import lmc.dcp  # lmc
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard

VOCABULARY = 256


class Block(nn.Module):
    """A transformer block: attention, then a gated feed-forward network."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        hidden = 8 * width // 3 // 32 * 32
        self.heads = heads
        self.norm1 = nn.RMSNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.norm2 = nn.RMSNorm(width)
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class GPT(nn.Module):
    """A language model of bytes, whose embedding is also its output layer."""

    def __init__(self, width: int, layers: int, context: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, width)
        self.position = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, max(1, width // 64)) for _ in range(layers))
        self.norm = nn.RMSNorm(width)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens) + self.position.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.norm(x) @ self.embed.weight.T


def text(size: int) -> Tensor:
    """At least `size` bytes, if there are as many, of Python's standard library, which is wherever this runs."""
    data = bytearray()
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        with contextlib.suppress(OSError):
            data += path.read_bytes()
        if len(data) >= size:
            break
    return torch.frombuffer(data, dtype=torch.uint8)


class Training:
    """A model and its optimizer."""

    def __init__(self, args: argparse.Namespace, rank: int, ranks: int, data: Tensor | None = None) -> None:
        torch.manual_seed(args.seed)
        self.args, self.rank, self.ranks = args, rank, ranks
        self.text = text(args.text) if data is None else data
        self.model = GPT(args.width, args.layers, args.context).to(args.device, torch.bfloat16)
        if ranks > 1:
            for block in self.model.blocks:
                fully_shard(block)
            fully_shard(self.model)
        self.weights = dict(self.model.named_parameters())
        self.masters = {name: p.detach().float() for name, p in self.weights.items()}
        self.optimizer = torch.optim.AdamW(list(self.masters.values()), lr=args.lr, betas=(0.9, 0.95), weight_decay=0.1)
        for master in self.masters.values():
            # As the first step would do, to have tensors to load into.
            moments = {key: torch.zeros_like(master) for key in ("exp_avg", "exp_avg_sq")}
            self.optimizer.state[master] = {"step": torch.tensor(0.0), **moments}

    def step(self, step: int) -> float:
        """Trains on one batch, which depends on the seed and the step alone; the loss over all ranks before it."""
        draw = torch.Generator().manual_seed(self.args.seed * 1_000_003 + step)
        context = self.args.context
        starts = torch.randint(len(self.text) - context - 1, (self.args.batch,), generator=draw)
        mine = starts[self.rank :: self.ranks].tolist()
        batch = torch.stack([self.text[s : s + context + 1] for s in mine]).to(self.args.device).long()
        logits = self.model(batch[:, :-1]).float()
        loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        for name, master in self.masters.items():
            weight = self.weights[name]
            master.grad = None if weight.grad is None else weight.grad.float()
            weight.grad = None
        nn.utils.clip_grad_norm_(list(self.masters.values()), 1.0)
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate(step)
        self.optimizer.step()
        with torch.no_grad():
            for name, master in self.masters.items():
                self.weights[name].copy_(master)
        total = loss.detach()
        if self.ranks > 1:
            dist.all_reduce(total)
        return total.item() / self.ranks

    def learning_rate(self, step: int) -> float:
        """The learning rate: it rises over the warm-up, and falls to a tenth."""
        warm = min(1.0, step / self.args.warmup)
        return self.args.lr * warm * (0.1 + 0.45 * (1 + math.cos(math.pi * step / self.args.schedule)))

    def state(self, step: int) -> dict[str, Any]:
        """The contents of a snapshot."""
        moments = self.optimizer.state
        return {
            "model": {name: p.detach() for name, p in self.weights.items()},
            "master": self.masters,
            "exp_avg": {name: moments[m]["exp_avg"] for name, m in self.masters.items()},
            "exp_avg_sq": {name: moments[m]["exp_avg_sq"] for name, m in self.masters.items()},
            "progress": {"step": step},
        }

    def load(self, state: dict[str, Any]) -> int:
        """Restores a state whose tensors were loaded in place; returns its step."""
        step = int(state["progress"]["step"])
        for master in self.masters.values():
            self.optimizer.state[master]["step"].fill_(float(step))
        return step


class Snapshots:
    """The snapshots of a run, and how long they took."""

    def __init__(self, args: argparse.Namespace, rank: int) -> None:
        self.args, self.rank = args, rank
        self.folder = Path(args.dir)
        self.pending: Any = None
        self.blocked = 0.0
        # Messages of background saves must not mix with those of training.
        self.group = dist.new_group() if args.background != "none" else None

    def path(self, step: int) -> Path:
        return self.folder / f"step-{step:06}"

    def writer(self, step: int, loss: float) -> Any:
        if self.args.format == "dcp":
            return dcp.FileSystemWriter(self.path(step))
        options = {"keep_last": self.args.keep_last, "threads": self.args.threads, "metadata": {"loss": loss}}
        return lmc.dcp.Writer(self.folder, step=step, **options)  # lmc

    def save(self, training: Training, step: int, loss: float) -> None:
        """Saves a snapshot; with `--async`, in the background."""
        started = time.perf_counter()
        self.wait()
        writer, state = self.writer(step, loss), training.state(step)
        if self.args.background == "none":
            dcp.save(state, storage_writer=writer, no_dist=training.ranks == 1)
        else:
            from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType

            kind = AsyncCheckpointerType.PROCESS if self.args.background == "process" else AsyncCheckpointerType.THREAD
            self.pending = dcp.async_save(
                state, storage_writer=writer, async_checkpointer_type=kind, process_group=self.group
            )
        self.blocked += time.perf_counter() - started

    def wait(self) -> None:
        """Waits for the snapshot that is being saved."""
        if self.pending is not None:
            getattr(self.pending, "upload_completion", self.pending).result()
            self.pending = None

    def resume(self, training: Training) -> int:
        """Loads the newest complete snapshot; returns its step, 0 if there is none."""
        if not (steps := self.steps()):
            return 0
        state = training.state(0)
        reader = (
            dcp.FileSystemReader(self.path(steps[-1])) if self.args.format == "dcp" else lmc.dcp.Reader(self.folder)
        )  # lmc
        dcp.load(state, storage_reader=reader, no_dist=training.ranks == 1)
        return training.load(state)

    def steps(self) -> list[int]:
        """The steps of the complete snapshots."""
        if self.args.format == "dcp":
            return sorted(int(p.parent.name[5:]) for p in self.folder.glob("step-*/.metadata"))
        return [s.step for s in lmc.Store(self.folder).snapshots()] if self.folder.exists() else []

    def size(self, step: int) -> int:
        """Bytes that a snapshot took."""
        if self.args.format == "dcp":
            return sum(p.stat().st_size for p in self.path(step).iterdir())
        return lmc.Store(self.folder).find(step).new_size


def export(folder: Path, training: Training, step: int) -> None:
    """Writes the state as a safetensors file, under the names of the groups."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    tensors = {
        f"{g}.{n}": t.contiguous()
        for g, group in training.state(step).items()
        if g != "progress"
        for n, t in group.items()
    }
    save_file(tensors, folder / f"step-{step:06}.safetensors", metadata={"step": str(step)})


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--dir", required=True, help="the folder of the run's snapshots")
    parser.add_argument("--steps", type=int, default=60, help="train until this step (default: %(default)s)")
    parser.add_argument(
        "--every", type=int, default=10, help="steps between snapshots; 0 for none (default: %(default)s)"
    )
    parser.add_argument("--resume", action="store_true", help="go on from the newest complete snapshot")
    parser.add_argument("--keep-last", type=int, metavar="N", help="how many snapshots to keep; all by default")
    parser.add_argument(
        "--format", choices=["lmc", "dcp"], default="lmc", help="how snapshots are kept (default: %(default)s)"
    )
    parser.add_argument(
        "--async",
        dest="background",
        choices=["none", "thread", "process"],
        default="none",
        help="save in the background",
    )
    parser.add_argument("--width", type=int, default=256, help="width of the model (default: %(default)s)")
    parser.add_argument("--layers", type=int, default=4, help="blocks of the model (default: %(default)s)")
    parser.add_argument(
        "--batch", type=int, default=16, help="sequences in a batch, of all ranks (default: %(default)s)"
    )
    parser.add_argument("--context", type=int, default=128, help="bytes of a sequence (default: %(default)s)")
    parser.add_argument("--device", default="cpu", help="such as cuda, with one process (default: %(default)s)")
    parser.add_argument("--lr", type=float, default=1e-3, help="learning rate (default: %(default)s)")
    parser.add_argument(
        "--schedule", type=int, default=1000, help="steps over which the learning rate falls (default: %(default)s)"
    )
    parser.add_argument("--warmup", type=int, default=20, help="steps in which it rises first (default: %(default)s)")
    parser.add_argument("--text", type=int, default=4_000_000, help="bytes of text (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1, help="threads of each process (default: %(default)s)")
    parser.add_argument("--losses", metavar="FILE", help="append a line of JSON for each step to this file")
    parser.add_argument("--export", help="also write safetensors files to this folder, with one process")
    args = parser.parse_args()
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if args.export and ranks > 1:
        parser.error("--export is for one process: lmc unpack --to safetensors does it for any number")
    if args.device != "cpu" and ranks > 1:
        parser.error("--device is for one process")
    return args


def train(args: argparse.Namespace, rank: int, ranks: int) -> None:
    training, snapshots = Training(args, rank, ranks), Snapshots(args, rank)
    first = snapshots.resume(training) if args.resume else 0
    parameters = sum(p.numel() for p in training.weights.values())
    if rank == 0:
        where = f"resuming after step {first}" if first else "starting"
        print(f"{parameters:,} parameters, {ranks} ranks, {where}", flush=True)
    steps, started = [], time.perf_counter()
    saved = []
    for step in range(first + 1, args.steps + 1):
        begun = time.perf_counter()
        loss = training.step(step)
        steps.append(time.perf_counter() - begun)
        if rank == 0 and args.losses:
            Path(args.losses).parent.mkdir(parents=True, exist_ok=True)
            with open(args.losses, "a") as log:
                log.write(json.dumps({"step": step, "loss": loss.hex()}) + "\n")
        if rank == 0 and (step % 10 == 0 or step == args.steps):
            print(f"step {step:6}   loss {loss:.4f}   {1e3 * steps[-1]:.0f} ms", flush=True)
        if args.every and step % args.every == 0:
            snapshots.save(training, step, loss)
            saved.append(step)
        if args.export and (not args.every or step % args.every == 0):
            export(Path(args.export), training, step)
    snapshots.wait()
    if rank == 0 and steps:
        total = (time.perf_counter() - started) / len(steps)
        mean = sum(steps) / len(steps)
        blocked = snapshots.blocked / len(steps)
        print(f"a step took {1e3 * mean:.0f} ms; with snapshots {1e3 * total:.0f} ms, {1e3 * blocked:.0f} ms waiting")
        raw = parameters * (2 + 3 * 4)
        for step in saved:
            size = snapshots.size(step)
            print(f"{snapshots.path(step)}: {size:,} bytes, {100 * size / raw:.1f} % of {raw:,}")


def leave() -> NoReturn:
    """Ends a rank without shutting down the Python interpreter.

    FSDP keeps the process group after it was destroyed, and with it gloo's threads. Before Python 3.14, a thread that
    releases a tensor during shutdown aborts the process: github.com/pytorch/pytorch/issues/190489.
    """
    for child in multiprocessing.active_children():
        child.terminate()
        child.join()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def main() -> None:
    args = arguments()
    torch.set_num_threads(args.threads)
    # Not every kernel of a GPU has a deterministic form.
    torch.use_deterministic_algorithms(True, warn_only=args.device != "cpu")
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if ranks > 1 or args.background != "none":
        if "RANK" not in os.environ:
            os.environ.update(
                RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(29_500 + os.getpid() % 1000)
            )
        dist.init_process_group("cpu:gloo")
    try:
        train(args, int(os.environ.get("RANK", "0")), ranks)
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
    if ranks > 1:
        leave()


if __name__ == "__main__":
    main()
