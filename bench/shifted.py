#!/usr/bin/env python3
"""The cost of a base with a longer header, so that its blocks are shifted: bench/shifted.py LMC NEW OLD.

OLD gets a header that is 8 bytes longer, and one that is 1 MiB + 8 bytes longer (blanks after the JSON, as safetensors
allows). Bases are compressed, or chained: the last of CHAIN deltas, each with another such header. The last byte
differs between them, so none can stand for another one. Each round runs the unchanged base twice. The output is the
median over the rounds of the processor time over that of the first run of the unchanged base; the ratio of its second
run shows the noise of the machine.
"""

import argparse
import random
import statistics
import struct
import tempfile
from pathlib import Path

from pair import seconds

CHAIN = 3


def with_longer_header(source: Path, target: Path, by: int, last: int) -> None:
    raw = source.read_bytes()
    (length,) = struct.unpack_from("<Q", raw)
    longer = struct.pack("<Q", length + by) + raw[8 : 8 + length] + b" " * by
    target.write_bytes(longer + raw[8 + length : -1] + bytes([last]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lmc", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("old", type=Path)
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as name:
        folder = Path(name)

        def run(command: str, source: Path, bases: list[Path], target: Path) -> float:
            options = ["--quiet", "--force", "--threads", "1", *(o for base in bases for o in ("--base", base))]
            return seconds([arguments.lmc, command, *options, source, "--output", target])

        # How much longer the headers of the chain are; the last one is that of the base.
        aligned = [0] * CHAIN
        ways = {"as it is": aligned, "again": aligned, "+ 8": [0, 16, 8], "+ 1 MiB + 8": [0, 8, (1 << 20) + 8]}
        bases: dict[str, dict[str, list[Path]]] = {"compressed": {}, "chained": {}}
        for way, shifts in ways.items():
            chain: list[Path] = []
            for i, shift in enumerate(shifts):
                raw, packed = folder / "raw", folder / f"{len(bases['chained'])}-{i}.lmc"
                with_longer_header(arguments.old, raw, shift, last=i)
                run("compress", raw, chain, packed)
                # The newest first: it is the base; the others are its own bases.
                chain = [packed, *chain]
            bases["chained"][way] = chain
            alone = folder / f"alone-{len(bases['compressed'])}.lmc"
            run("compress", raw, [], alone)
            bases["compressed"][way] = [alone]
        print("| base | header | compress | decompress | size |")
        print("| --- | --- | --: | --: | --: |")
        for kind, of_kind in bases.items():
            times: dict[str, dict[str, list[float]]] = {"compress": {}, "decompress": {}}
            sizes = {}
            for _ in range(arguments.rounds):
                for way in random.sample(list(ways), len(ways)):
                    delta, restored = folder / "delta.lmc", folder / "restored"
                    for command, source, target in (
                        ("compress", arguments.new, delta),
                        ("decompress", delta, restored),
                    ):
                        times[command].setdefault(way, []).append(run(command, source, of_kind[way], target))
                    sizes[way] = delta.stat().st_size
                    if restored.read_bytes() != arguments.new.read_bytes():
                        raise SystemExit(f"{kind} base, header {way}: other bytes")
            first = next(iter(ways))
            for way in ways:
                ratios = [
                    statistics.median(a / b for a, b in zip(of_command[way], of_command[first], strict=True))
                    for of_command in times.values()
                ]
                size = sizes[way] / sizes[first]
                print(f"| {kind} | {way} | {ratios[0]:.3f} | {ratios[1]:.3f} | {size:.4f} |", flush=True)


if __name__ == "__main__":
    main()
