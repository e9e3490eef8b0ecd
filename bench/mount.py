#!/usr/bin/env python3
"""Models loaded by safetensors from `lmc mount`, beside `lmc.torch.load_file` of the same files, and memcpy.

    bench/run mount [--rounds N] [FILE …]       by default minilm and a model of 2 GB of bf16 weights

Each round runs in new processes, with the mount's and the kernel's caches empty of the file: it is mounted anew.
safetensors maps files and reads nothing before a tensor is used, so that a byte of each page is read; then the model is
in memory, as it is after `lmc.torch.load_file`. memcpy copies the file's bytes to memory that was not touched before,
with one thread. A ratio is that of one round, and medians over the rounds count. Prints the peak of the mount's memory,
too.
"""

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import ml_dtypes
import numpy as np
from markdown import show
from safetensors.numpy import save_file

#: Loads a file in a new process and prints the seconds. The import of PyTorch is not measured.
LOADERS = {
    "memcpy": """
import numpy as np
data = np.fromfile(PATH, np.uint8)
start = time.perf_counter()
copy = data.copy()
""",
    "lmc.torch": """
import lmc.torch
start = time.perf_counter()
tensors = lmc.torch.load_file(PATH)
""",
    "mount": """
import safetensors.torch, torch
start = time.perf_counter()
tensors = safetensors.torch.load_file(PATH)
touched = sum(int(t.view(torch.uint8).flatten()[::4096].sum()) for t in tensors.values())
""",
}
MINILM = Path(__file__).resolve().parent.parent / "testdata" / "minilm-f32.safetensors"


def made(path: Path, size: int) -> Path:
    """A model of bf16 weights with matrices as large as in one of a few billion parameters."""
    rng = np.random.default_rng(1)
    elements = 4096 * 4096
    drawn = (rng.standard_normal(elements, np.float32) * np.float32(0.02) for _ in range(size // (2 * elements)))
    tensors = {f"layers.{i:03}.weight": w.astype(ml_dtypes.bfloat16) for i, w in enumerate(drawn)}
    save_file(tensors, path)
    return path


def load(loader: str, path: Path) -> float:
    program = f"import time\nPATH = {str(path)!r}\n{LOADERS[loader]}\nprint(time.perf_counter() - start)"
    return float(subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout)


@contextmanager
def mounted(lmc: str, folder: Path, at: Path) -> Iterator[Callable[[], int]]:
    """A new mount of a folder; what it gives says the most bytes of memory that the mount has had."""
    process = subprocess.Popen([lmc, "-q", "mount", folder, at])
    while not os.path.ismount(at):
        time.sleep(0.01)

    def peak() -> int:
        status = Path(f"/proc/{process.pid}/status").read_text()
        return int(next(line for line in status.splitlines() if line.startswith("VmHWM:")).split()[1]) << 10

    try:
        yield peak
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def measure(lmc: str, file: Path, rounds: int, folder: Path) -> dict:
    source, at = folder / "source", folder / "mnt"
    source.mkdir(exist_ok=True)
    at.mkdir(exist_ok=True)
    packed = source / f"{file.name}.lmc"
    subprocess.run([lmc, "-q", "compress", "-f", "-o", packed, file], check=True)
    found = []
    for _ in range(rounds):
        memcpy, direct = load("memcpy", file), load("lmc.torch", packed)
        with mounted(lmc, source, at) as peak:
            found.append(
                {"memcpy": memcpy, "lmc.torch": direct, "mount": load("mount", at / file.name), "peak": peak()}
            )
    packed.unlink()
    size = file.stat().st_size

    def middle(value) -> float:
        return statistics.median(map(value, found))

    return {
        "file": file.name,
        "MB": round(size / 1e6),
        **{f"{name} GB/s": size / middle(lambda r, name=name: r[name]) / 1e9 for name in LOADERS},
        "mount / lmc.torch": middle(lambda r: r["lmc.torch"] / r["mount"]),
        "mount / memcpy": middle(lambda r: r["memcpy"] / r["mount"]),
        "peak of the mount in MiB": max(r["peak"] for r in found) / 2**20,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lmc", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.add_argument("files", nargs="*", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = args.files or [MINILM, made(folder / "made.safetensors", 2_000_000_000)]
        rows = [measure(args.lmc, file, args.rounds, folder) for file in files]
    show(rows, args.json)


if __name__ == "__main__":
    main()
