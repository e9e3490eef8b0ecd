#!/usr/bin/env python3
"""Training states in the formats that training writes, beside safetensors: sizes, deltas, the time to find tensors.

Usage: bench/layouts.py LMC OLD.safetensors NEW.safetensors [FILE...]

Writes the tensors of both files as `.pt`, as `.distcp` in both of its forms, and those that NumPy has as `.npz`;
compresses them with the program LMC, restores and compares them, and prints parts of raw: alone, against the same
format of OLD, against NEW in safetensors. Then processor time of compressing with one thread beside that of the
safetensors file, and of finding the tensors alone, in parts of the former: the least of nine runs each. FILEs are
compared with zstd: 3 at `default`, 19 at `max`. It needs PyTorch, safetensors, NumPy and zstandard.
"""

import argparse
import filecmp
import json
import resource
import subprocess
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.distributed.checkpoint as dcp
import zstandard
from safetensors.torch import load_file, save_file
from torch.distributed.checkpoint.filesystem import FileSystemWriter, SerializationFormat

Tensors = dict[str, torch.Tensor]


def distributed(tensors: Tensors, folder: Path, form: SerializationFormat) -> None:
    dcp.save(tensors, storage_writer=FileSystemWriter(folder, serialization_format=form))


FORMATS: dict[str, tuple[str, Callable[[Tensors, Path], object]]] = {
    "safetensors": ("state.safetensors", lambda t, d: save_file(t, d / "state.safetensors")),
    ".pt": ("state.pt", lambda t, d: torch.save(t, d / "state.pt")),
    ".distcp": ("__0_0.distcp", lambda t, d: distributed(t, d, SerializationFormat.TORCH_SAVE)),
    ".distcp of safetensors": ("__0_0.distcp", lambda t, d: distributed(t, d, SerializationFormat.SAFETENSORS)),
    "safetensors without bf16": ("np.safetensors", lambda t, d: save_file(in_numpy(t), d / "np.safetensors")),
    ".npz": ("state.npz", lambda t, d: np.savez(d / "state.npz", **{k: v.numpy() for k, v in in_numpy(t).items()})),
}


def in_numpy(tensors: Tensors) -> Tensors:
    return {name: tensor for name, tensor in tensors.items() if tensor.dtype != torch.bfloat16}


def seconds(command: list[str | Path]) -> float:
    """The least processor time of nine runs."""

    def once() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    return min(once() for _ in range(9))


class Program:
    def __init__(self, lmc: Path, folder: Path) -> None:
        self.lmc, self.file, self.restored = lmc, folder / "compressed", folder / "restored"

    def part(self, raw: Path, base: Path | None = None, level: str = "default") -> float:
        """The part of a file's size that it takes compressed."""
        bases = ["--base", base] if base else []
        subprocess.run([self.lmc, "compress", "-q", "-f", *bases, "--level", level, raw, "-o", self.file], check=True)
        # With nothing in common, the file needs no base.
        listed = subprocess.run([self.lmc, "list", "--json", self.file], check=True, stdout=subprocess.PIPE)
        needed = bases if json.loads(listed.stdout)["bases"] else []
        subprocess.run([self.lmc, "decompress", "-q", "-f", *needed, self.file, "-o", self.restored], check=True)
        if not filecmp.cmp(raw, self.restored, shallow=False):
            raise SystemExit(f"{raw} was restored to other bytes")
        return self.file.stat().st_size / raw.stat().st_size

    def compressing(self, raw: Path) -> float:
        return seconds([self.lmc, "compress", "-q", "-f", "-T1", raw, "-o", self.file])

    def finding(self, raw: Path) -> float:
        """No tensor has that name: nothing but finding them is done."""
        return seconds([self.lmc, "unpack", "-q", raw, "--prefix", "\x7f", "-o", self.restored.parent / "none"])


def row(cells: list[str]) -> None:
    print("| " + " | ".join(cells) + " |")


def percent(value: float) -> str:
    return f"{100 * value:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("lmc", type=Path)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("files", type=Path, nargs="*")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    # In memory, if such a file system exists: reading and writing are not measured.
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as name:
        folder = Path(name)
        program = Program(args.lmc.resolve(), folder)
        files: dict[str, list[Path]] = {form: [] for form in FORMATS}
        for source in (args.old, args.new):
            tensors = load_file(source)
            for number, (form, (file, write)) in enumerate(FORMATS.items()):
                target = folder / f"{source.stem}-{number}"
                target.mkdir()
                write(tensors, target)
                files[form].append(target / file)
        empty = folder / "empty"
        empty.touch()
        start = program.finding(empty)
        row(["", "alone", "against the earlier one", "against safetensors", "time", "to find tensors"])
        row(["---", *["--:"] * 5])
        for form, (old, new) in files.items():
            plain = files["safetensors without bf16" if form == ".npz" else "safetensors"][1]
            time = program.compressing(new)
            row(
                [
                    form,
                    *map(percent, (program.part(new), program.part(new, old))),
                    "–" if new == plain else percent(program.part(new, plain)),
                    f"{time / program.compressing(plain):.2f}",
                    percent(max(0.0, program.finding(new) - start) / time) + " %",
                ]
            )
        for file in args.files:
            raw = file.read_bytes()
            peers = [len(zstandard.compress(raw, level)) / len(raw) for level in (3, 19)]
            ours = [program.part(file, level=level) for level in ("default", "max")]
            print(f"\n{file.name}: default {percent(ours[0])}, zstd -3 {percent(peers[0])};", end=" ")
            print(f"max {percent(ours[1])}, zstd -19 {percent(peers[1])}")


if __name__ == "__main__":
    main()
