#!/usr/bin/env python3
"""Checkpoints of a training state from Python: their cost compared with alternatives.

    bench/run checkpoints OLD.safetensors NEW.safetensors        states of one run, as examples/pretrain.py
    --export writes them

Every way to save gets the same two states, in memory, one after the other, and the second is measured: bytes, seconds
for which the training loop would wait, seconds until everything is on disk, seconds to load it into existing tensors,
and the memory that saving and loading took besides the tensors. Each runs in a process of its own, in turns, and the
loaded state is compared to the bit. Prints a table of medians.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import pickle
import shutil
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from markdown import number, table
from safetensors.torch import load_file, save_file

ROOT = Path(__file__).resolve().parent.parent
THREADS = 2
State = dict[str, torch.Tensor]
#: Saves a state to a folder, given the folder of the one before; returns the work to wait for.
Save = Callable[[State, Path, Path | None], Callable[[], None] | None]
Load = Callable[[State, Path], State]


def sync(file: Path) -> None:
    descriptor = os.open(file, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def save_torch(state: State, folder: Path, _: Path | None) -> None:
    torch.save(state, folder / "state.pt")
    sync(folder / "state.pt")


def load_torch(into: State, folder: Path) -> State:
    for name, t in torch.load(folder / "state.pt", mmap=True).items():
        into[name].copy_(t)
    return into


def save_safetensors(state: State, folder: Path, _: Path | None) -> None:
    save_file(state, folder / "state.safetensors")
    sync(folder / "state.safetensors")


def load_safetensors(into: State, folder: Path) -> State:
    for name, t in load_file(folder / "state.safetensors").items():
        into[name].copy_(t)
    return into


def save_dcp(state: State, folder: Path, _: Path | None) -> None:
    dcp.save(state, storage_writer=dcp.FileSystemWriter(folder, thread_count=THREADS), no_dist=True)


def load_dcp(into: State, folder: Path) -> State:
    dcp.load(into, storage_reader=dcp.FileSystemReader(folder), no_dist=True)
    return into


def save_dcp_zstd(state: State, folder: Path, _: Path | None) -> None:
    from torch.distributed.checkpoint._extension import ZStandard

    writer = dcp.FileSystemWriter(folder, thread_count=THREADS, _extensions=[ZStandard()])
    dcp.save(state, storage_writer=writer, no_dist=True)


def save_zipnn(state: State, folder: Path, _: Path | None) -> None:
    import zipnn

    codecs = {
        dtype: zipnn.ZipNN(bytearray_dtype=name, input_format="byte", threads=THREADS)
        for dtype, name in [(torch.bfloat16, "bfloat16"), (torch.float32, "float32")]
    }
    packed = {}
    for name, t in state.items():
        raw = bytearray(t.reshape(-1).view(torch.uint8).numpy().tobytes())
        packed[name] = (t.dtype, t.shape, bytes(codecs[t.dtype].compress(raw)))
    # Not `torch.save`, whose old pickles store bytes as text, 1.5 times as many.
    with open(folder / "state.znn", "wb") as file:
        pickle.dump(packed, file, protocol=5)
    sync(folder / "state.znn")


def load_zipnn(into: State, folder: Path) -> State:
    import zipnn

    names = {torch.bfloat16: "bfloat16", torch.float32: "float32"}
    codecs = {d: zipnn.ZipNN(bytearray_dtype=n, input_format="byte", threads=THREADS) for d, n in names.items()}
    packed = pickle.loads((folder / "state.znn").read_bytes())
    for name, (dtype, shape, data) in packed.items():
        raw = bytearray(codecs[dtype].decompress(data))
        into[name].copy_(torch.frombuffer(raw, dtype=dtype).reshape(shape))
    return into


def lmc_writer(folder: Path, base: Path | None) -> Any:
    """Of a store in the parent of the folder, whose name is the step."""
    import lmc.dcp

    return lmc.dcp.Writer(folder, anchor_every=16 if base else 1, threads=THREADS)


def save_lmc_whole(state: State, folder: Path, _: Path | None) -> None:
    dcp.save(state, storage_writer=lmc_writer(folder, None), no_dist=True)


def save_lmc(state: State, folder: Path, base: Path | None) -> None:
    dcp.save(state, storage_writer=lmc_writer(folder, base), no_dist=True)


def save_lmc_thread(state: State, folder: Path, base: Path | None) -> Callable[[], None]:
    saved = dcp.async_save(state, storage_writer=lmc_writer(folder, base), no_dist=True)
    return lambda: saved.result()


def save_dcp_thread(state: State, folder: Path, _: Path | None) -> Callable[[], None]:
    saved = dcp.async_save(state, storage_writer=dcp.FileSystemWriter(folder, thread_count=THREADS), no_dist=True)
    return lambda: saved.result()


def load_lmc(into: State, folder: Path) -> State:
    import lmc.dcp

    dcp.load(into, storage_reader=lmc.dcp.Reader(folder), no_dist=True)
    return into


WAYS: dict[str, tuple[Save, Load]] = {
    "`torch.save`": (save_torch, load_torch),
    "safetensors": (save_safetensors, load_safetensors),
    "`dcp.save`": (save_dcp, load_dcp),
    "`dcp.save`, ZStandard": (save_dcp_zstd, load_dcp),
    "ZipNN": (save_zipnn, load_zipnn),
    "`dcp.save`, lmc, no base": (save_lmc_whole, load_lmc),
    "`dcp.save`, lmc": (save_lmc, load_lmc),
    "`dcp.async_save`": (save_dcp_thread, load_dcp),
    "`dcp.async_save`, lmc": (save_lmc_thread, load_lmc),
}


class Peak:
    """The peak of memory in use, less the memory in use before."""

    def __init__(self) -> None:
        self.before = self._read("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")

    @staticmethod
    def _read(key: str) -> int:
        status = Path("/proc/self/status").read_text()
        return next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith(key))

    def taken(self) -> int:
        return max(0, self._read("VmHWM") - self.before)


def copied(path: Path) -> State:
    """A state in its own memory, not mapped from a file."""
    return {name: t.clone() for name, t in load_file(path).items()}


def worker(way: str, old: Path, new: Path, folder: Path) -> dict[str, float]:
    """Saves two states and loads the second."""
    warnings.filterwarnings("ignore")
    torch.set_num_threads(THREADS)
    save, load = WAYS[way]
    states = [copied(old), copied(new)]
    if "async" in way:
        torch.distributed.init_process_group("cpu:gloo", init_method=f"file://{folder}/meeting", rank=0, world_size=1)
    result: dict[str, float] = {}
    earlier, whole = None, 0
    for i, state in enumerate(states):
        target = folder / f"step-{i}"
        target.mkdir()
        os.sync()
        # Otherwise the first full collection of garbage from importing PyTorch falls into one of the saves.
        gc.collect()
        peak, begun = Peak(), time.perf_counter()
        rest = save(state, target, earlier)
        result["blocked"] = time.perf_counter() - begun
        if rest is not None:
            rest()
        result["saved"] = time.perf_counter() - begun
        result["save_memory"] = peak.taken()
        earlier = target
        # Of the last save: what is there, less what was there after the one before.
        size = sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())
        result["bytes"], whole = size - whole, size
    into = {name: torch.zeros_like(t) for name, t in states[1].items()}
    gc.collect()
    peak, begun = Peak(), time.perf_counter()
    found = load(into, folder / "step-1")
    result["loaded"] = time.perf_counter() - begun
    result["load_memory"] = peak.taken()
    for name, t in states[1].items():
        assert torch.equal(found[name].view(torch.uint8), t.view(torch.uint8)), f"{way}: {name} was not restored"
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    return result


def table_of(measured: dict[str, Any]) -> str:
    """Medians, and their ratios to PyTorch's own way."""
    ways = measured["ways"]
    plain = ways["`dcp.save`"]
    rows = []
    for name, r in ways.items():
        row = [name, f"{r['bytes']:,.0f}", f"{100 * r['bytes'] / measured['raw']:.2f} %"]
        for key in ("blocked", "saved", "loaded"):
            row += [f"{r[key]:.3f}", number(r[key] / plain[key])]
        row += [f"{r[key] / 2**20:.0f}" for key in ("save_memory", "load_memory")]
        rows.append(row)
    headings = [
        "",
        "bytes",
        "of raw",
        "blocked, s",
        "× dcp",
        "on disk, s",
        "× dcp",
        "load, s",
        "× dcp",
        "save MiB",
        "load MiB",
    ]
    return table(headings, rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--folder",
        type=Path,
        default=ROOT / "target" / "checkpoints",
        help="where to write; on the disk that is measured",
    )
    parser.add_argument("--worker", choices=WAYS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        print(json.dumps(worker(args.worker, args.old, args.new, args.folder)))
        return 0
    found: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    for _ in range(args.rounds):
        for way in WAYS:
            shutil.rmtree(args.folder, ignore_errors=True)
            args.folder.mkdir(parents=True)
            command = [
                sys.executable,
                __file__,
                str(args.old),
                str(args.new),
                "--folder",
                str(args.folder),
                "--worker",
                way,
            ]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            found[way].append(json.loads(done.stdout.splitlines()[-1]))
    shutil.rmtree(args.folder)
    ways = {way: {key: statistics.median(r[key] for r in rounds) for key in rounds[0]} for way, rounds in found.items()}
    raw = sum(t.numel() * t.element_size() for t in load_file(args.new).values())
    print(table_of({"raw": raw, "ways": ways}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
