"""What the ranks of `test_dcp.py` do: a small model that FSDP2 shards, trained with AdamW, saved and loaded."""

from __future__ import annotations

import atexit
import faulthandler
import multiprocessing
import multiprocessing.connection
import os
import signal
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn

import lmc.dcp
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from lmc.__main__ import main
from lmc.dcp import _stores
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

MODES = ("sync", "thread", "process")


# Earlier tests may have started threads of PyTorch, which forbids forking. So a server without threads forks; it has
# imported what optimizers import lazily.
multiprocessing.set_forkserver_preload([__name__, "torch._dynamo"])


class Group:
    """Ranks that wait for jobs: starting them takes longer than most jobs."""

    def __init__(self, ranks: int, start_method: str, folder: Path) -> None:
        context = multiprocessing.get_context(start_method)
        meeting = folder / f"meeting-{os.urandom(4).hex()}"
        self.pipes, self.processes = [], []
        for rank in range(ranks):
            ours, theirs = context.Pipe()
            process = context.Process(target=_rank, args=(rank, ranks, str(meeting), theirs))
            process.start()
            theirs.close()
            self.pipes.append(ours)
            self.processes.append(process)

    def run(self, job: Callable[..., None], args: tuple[Any, ...]) -> None:
        """Has all ranks do a job; raises `RuntimeError` when one fails or dies, and then no rank is left."""
        try:
            for pipe in self.pipes:
                pipe.send((job, args))
            waiting, failures = list(self.pipes), []
            # Some may wait for one that failed.
            while ready := waiting and multiprocessing.connection.wait(waiting, 10 if failures else None):
                for pipe in ready:
                    waiting.remove(pipe)
                    if failure := self.failure(self.pipes.index(pipe)):
                        failures.append(failure)
            if failures:
                raise RuntimeError("\n".join(failures))
        except BaseException:
            self.end()
            raise

    def failure(self, rank: int) -> str | None:
        """A rank's answer to the job that it has done, or the error that it died of."""
        try:
            said = self.pipes[rank].recv()
        except EOFError:
            self.processes[rank].join()
            code = self.processes[rank].exitcode
            said = f"died of {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
        return said and f"rank {rank}: {said}"

    def end(self) -> None:
        for pipe in self.pipes:
            pipe.close()
        for process in self.processes:
            process.join(10)
            process.kill()
            process.join()


_groups: dict[tuple[int, str], Group] = {}


@atexit.register
def _end() -> None:
    for group in _groups.values():
        group.end()


def run(ranks: int, job: Callable[..., None], *args: Any, start_method: str = "forkserver", folder: Path) -> None:
    """Runs a job in `ranks` processes. It gets the rank and the number of ranks; nothing is cached from earlier jobs.

    The processes are started by the first job for that number and meet at a file in the folder.
    """
    group = _groups.pop((ranks, start_method), None) or Group(ranks, start_method, folder)
    group.run(job, args)
    # Not one that a job failed in.
    _groups[ranks, start_method] = group


def _rank(rank: int, ranks: int, meeting: str, pipe: Connection) -> None:
    faulthandler.enable()  # says where each thread is when a rank dies of a signal
    torch.set_num_threads(1)
    # The processes of `async_save` meet there, too.
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1")
    warnings.filterwarnings("ignore", message=".*torch.distributed is disabled.*")
    dist.init_process_group("cpu:gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks)
    try:
        while True:
            job, args = pipe.recv()
            failure = None
            try:
                _stores.forget()
                job(rank, ranks, *args)
            except BaseException:
                failure = traceback.format_exc()
            pipe.send(failure)
    except (EOFError, OSError):  # there are no more
        pass
    # As `leave` of examples/pretrain.py: a process that was spawned would take Python down.
    for child in multiprocessing.active_children():
        child.terminate()
        child.join()
    os._exit(0)


def process(work: Callable[..., Any], *args: Any, folder: Path) -> subprocess.CompletedProcess[str]:
    """Does something in its own process, in a folder; returns its output and exit code."""
    with tempfile.TemporaryDirectory() as streams:
        paths = [f"{streams}/out", f"{streams}/err"]
        context = multiprocessing.get_context("forkserver")
        child = context.Process(target=_process, args=(str(folder), paths, work, args))
        child.start()
        child.join(120)
        child.kill()
        child.join()
        out, err = (Path(path).read_text() for path in paths)
    return subprocess.CompletedProcess([work, *args], child.exitcode, out, err)


def _process(folder: str, paths: list[str], work: Callable[..., Any], args: tuple[Any, ...]) -> NoReturn:
    os.chdir(folder)
    for stream, path in enumerate(paths, 1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), stream)
    sys.exit(work(*args))


def command(*arguments: str) -> int:
    """The command `lmc`."""
    sys.argv = ["lmc", *arguments]
    return main()


class Model(nn.Module):
    """Sizes that no number of ranks divides; a bias, a scalar; a buffer that changes little: its deltas are small."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(67, 48)
        self.layers = nn.ModuleList(nn.Linear(48, 48) for _ in range(3))
        self.head = nn.Linear(48, 67, bias=False)
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))
        self.register_buffer("slow", torch.randn(700, 200))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for layer in self.layers:
            x = x + torch.tanh(layer(x))
        return self.head(x)


def build(ranks: int, seed: int = 0) -> tuple[Model, torch.optim.AdamW]:
    torch.manual_seed(seed)
    model = Model()
    mesh = init_device_mesh("cpu", (ranks,))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3)


def train(model: Model, optimizer: torch.optim.AdamW, step: int) -> None:
    draw = torch.Generator().manual_seed(step)
    tokens = torch.randint(67, (4, 9), generator=draw)
    loss = nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    model.seen += 1
    model.slow += 1e-6 * torch.randn(model.slow.shape, generator=draw)


def state_of(model: Model, optimizer: torch.optim.AdamW, step: int) -> dict[str, Any]:
    weights, moments = get_state_dict(model, optimizer)
    return {"model": weights, "optimizer": moments, "step": step, "note": {"of": ["step", step]}}


def gathered(state: Any) -> Any:
    """A state with whole tensors in place of shards, on every rank.

    `StateDictOptions(full_state_dict=True)` has the same result, but gathers by functional collectives. In PyTorch 2.15
    these can damage the heap: the threads of gloo's group write the name of the collective that ended last to one
    string without a lock, and a name of more than 15 letters (`ALLGATHER_COALESCED`) is on the heap.
    """
    if isinstance(state, DTensor):
        assert state.placements == (Shard(0),)
        parts = [torch.empty(0)] * dist.get_world_size()
        dist.all_gather_object(parts, state.to_local())
        return torch.cat(parts)
    if isinstance(state, dict):
        return {key: gathered(value) for key, value in state.items()}
    return state


def full(model: Model, optimizer: torch.optim.AdamW) -> dict[str, Any]:
    """All of the state."""
    weights, moments = get_state_dict(model, optimizer)
    return gathered({"model": weights, "optimizer": moments})


def equal(a: Any, b: Any) -> bool:
    """Whether two states are the same bit for bit."""
    if isinstance(a, torch.Tensor):
        same = a.dtype == b.dtype and a.shape == b.shape
        return same and a.contiguous().view(-1).view(torch.uint8).equal(b.contiguous().view(-1).view(torch.uint8))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(equal, a, b))
    return bool(a == b)


def save(state: dict[str, Any], writer: lmc.dcp.Writer, mode: str) -> None:
    if mode == "sync":
        dcp.save(state, storage_writer=writer)
        return
    kind = AsyncCheckpointerType.PROCESS if mode == "process" else AsyncCheckpointerType.THREAD
    saved = dcp.async_save(state, storage_writer=writer, async_checkpointer_type=kind)
    getattr(saved, "upload_completion", saved).result()


def save_run(
    rank: int, ranks: int, folder: str, mode: str, steps: int, options: dict[str, Any], run: str | None = None
) -> None:
    """Saves a checkpoint to `run`, or the store in `folder`, after every step, and the expected state to `folder`."""
    model, optimizer = build(ranks)
    for step in range(steps):
        train(model, optimizer, step)
        writer = lmc.dcp.Writer(f"{run or f'{folder}/store'}/step-{step}", threads=1, **options)
        save(state_of(model, optimizer, step), writer, mode)
        expected = full(model, optimizer)
        if rank == 0:
            torch.save(expected, f"{folder}/expected-{step}.pt")


def load(rank: int, ranks: int, reader: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The contents of a checkpoint, loaded into a model with other weights: the whole state, and the rest."""
    model, optimizer = build(ranks, seed=1)
    train(model, optimizer, 99)
    state = state_of(model, optimizer, -1)
    dcp.load(state, storage_reader=reader)
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    return full(model, optimizer), state


def load_all(rank: int, ranks: int, folder: str, steps: list[int], run: str | None = None) -> None:
    """Every checkpoint equals the saved state, to the bit."""
    for step in steps:
        found, state = load(rank, ranks, lmc.dcp.Reader(run or f"{folder}/store", step=step))
        assert state["step"] == step and state["note"] == {"of": ["step", step]}
        if rank == 0:
            assert equal(found, torch.load(f"{folder}/expected-{step}.pt")), f"step {step} is not what was saved"


def load_plain(rank: int, ranks: int, folder: str, checkpoint: str, step: int) -> None:
    """The exported checkpoint equals the saved state, as read by PyTorch's own reader."""
    found, state = load(rank, ranks, dcp.FileSystemReader(checkpoint))
    assert state["step"] == step
    if rank == 0:
        assert equal(found, torch.load(f"{folder}/expected-{step}.pt"))


def save_plain(rank: int, ranks: int, folder: str) -> None:
    """PyTorch's own writer saves to `plain`, and rank 0 the expected state."""
    model, optimizer = build(ranks)
    train(model, optimizer, 0)
    columns = torch.arange(33.0).reshape(3, 11)
    shared = distribute_tensor(columns, init_device_mesh("cpu", (ranks,)), [Shard(1)])
    dcp.save(state_of(model, optimizer, 0) | {"columns": shared}, checkpoint_id=f"{folder}/plain")
    expected = full(model, optimizer) | {"columns": columns}
    if rank == 0:
        torch.save(expected, f"{folder}/expected-plain.pt")


def tensors(state: Any, way: str = "") -> dict[str, torch.Tensor]:
    """The tensors of a state, by the names that `torch.distributed.checkpoint` gives them."""
    if isinstance(state, torch.Tensor):
        return {way: state}
    items = state.items() if isinstance(state, dict) else enumerate(state) if isinstance(state, list) else ()
    parts = [tensors(value, f"{way}.{key}" if way else str(key)) for key, value in items]
    return {name: tensor for part in parts for name, tensor in part.items()}


def save_and_die(rank: int, ranks: int, *arguments: Any) -> None:
    """Saves as `save_run`, and rank 1 dies before it has written its part of the second checkpoint."""
    save_shard = lmc.dcp.Writer._save

    def dying(self: lmc.dcp.Writer, *arguments: Any) -> str:
        if self._step == 1 and rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return save_shard(self, *arguments)

    lmc.dcp.Writer._save = dying
    save_run(rank, ranks, *arguments)


def savers(rank: int, ranks: int, store: str, rounds: int, same: bool) -> None:
    """Groups of one rank save the same step at once: one of them is enough if they have the same state.

    If not, one wins, the others are told, and what was saved can be loaded.
    """
    groups = [dist.new_group([r]) for r in range(ranks)]
    draw = torch.Generator().manual_seed(0 if same else rank)
    mine = {"w": torch.randn(300, 300, generator=draw), "rank": 0 if same else rank}
    for step in range(rounds):
        dist.barrier()
        told = None
        try:
            dcp.save(mine, storage_writer=lmc.dcp.Writer(store, step=step, threads=1), process_group=groups[rank])
        except BaseException as e:  # PyTorch's exception for failures of any rank is one
            told = "".join(str(f) for f in [e, *getattr(e, "failures", {}).values()])
        failed = [None] * ranks
        dist.all_gather_object(failed, told)
        wins = [r for r in range(ranks) if failed[r] is None]
        assert len(wins) == (ranks if same else 1), failed
        assert all(f"step {step} has a snapshot" in text for text in failed if text), failed
        states = [None] * ranks
        dist.all_gather_object(states, mine)
        found = {"w": torch.zeros(300, 300), "rank": -1}
        dcp.load(found, storage_reader=lmc.dcp.Reader(store, step=step))
        assert equal(found, states[wins[0]])


def without_collectives(rank: int, ranks: int, store: str) -> None:
    try:
        dcp.save({"w": torch.ones(3)}, storage_writer=lmc.dcp.Writer(store, step=0), use_collectives=False)
    except lmc.UsageError as e:
        assert "leave out use_collectives=False" in str(e)
    else:
        raise AssertionError("it was saved")


def load_fails(rank: int, ranks: int, store: str, step: int, messages: list[str]) -> None:
    """Loading a damaged checkpoint reports the damage on some rank."""
    try:
        load(rank, ranks, lmc.dcp.Reader(store, step=step))
    except BaseException as e:  # PyTorch's exception for failures of any rank is one
        text = "".join(str(f) for f in [e, *getattr(e, "failures", {}).values()])
        assert any(m in text for m in messages), text
    else:
        raise AssertionError(f"step {step} of {store} was loaded")
