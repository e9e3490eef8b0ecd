"""Bytes decoded for each requested byte, in real files and chains of deltas: the least --max-work that suffices.

    python bench/work.py LMC FILE [LENGTH]

Makes a run of LENGTH snapshots (64) that begins with FILE, a safetensors file, each a delta of the one before. Prints,
for chains of several lengths, the bytes decoded for each requested byte, when the last snapshot is restored whole and
when rows of it are read at random.
"""

import random
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import tensors


def passes(command: list[str], work: int) -> bool:
    return subprocess.run([*command, "--max-work", str(work)], capture_output=True).returncode == 0


def smallest(command: list[str], asked: int) -> float:
    """The least work that suffices, in multiples of the requested bytes, within one percent."""
    high = asked
    while not passes(command, high):
        high *= 2
    low = high // 2
    while high - low > high // 100 + 1:
        middle = (low + high) // 2
        low, high = (low, middle) if passes(command, middle) else (middle, high)
    return high / asked


def step(path: Path, rng: np.random.Generator) -> None:
    """Changes one element in twenty of each tensor of a file by one unit in the last place."""
    changed = tensors.read(path)
    for t in changed:
        bits = t.data.view(f"u{t.data.itemsize}")
        t.data = bits + (rng.random(bits.size) < 0.05).astype(bits.dtype)
    tensors.write(path, changed)


def main() -> None:
    lmc, file, length = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 64
    rng, reads = np.random.default_rng(1), random.Random(1)
    with tempfile.TemporaryDirectory() as folder:
        raw = Path(folder, "raw.safetensors")
        raw.write_bytes(file.read_bytes())
        size = raw.stat().st_size
        compressed = [Path(folder, f"{i}.lmc") for i in range(length + 1)]
        previous = Path(folder, "previous.safetensors")
        print(f"{file.name}, {size} bytes: bytes decoded for each requested byte")
        print("deltas  whole   rows (largest of 12)")
        for i, to in enumerate(compressed):
            # Compressed with the raw base, as in a training run; restored from the chain.
            bases = [f"--base={previous}"] if i else []
            subprocess.run([lmc, "compress", "-q", *bases, raw, "-o", to], check=True)
            if i in (0, 1, 8, 32, length):
                chain = [f"--base={c}" for c in reversed(compressed[:i])]
                whole = smallest([lmc, "test", str(to), *chain], size)
                rows = []
                large = [t for t in tensors.read(raw) if len(t.shape) > 1]
                for _ in range(12):
                    t = reads.choice(large)
                    first = reads.randrange(t.shape[0])
                    asked = t.data.nbytes // t.shape[0]
                    cat = [lmc, "cat", str(to), t.name, "--rows", f"{first}..{first + 1}", *chain]
                    rows.append(smallest(cat, asked) * asked)
                print(f"{i:6}  {whole:5.2f}   {max(rows) / 2**20:.1f} MiB", flush=True)
            previous.write_bytes(raw.read_bytes())
            step(raw, rng)


if __name__ == "__main__":
    main()
