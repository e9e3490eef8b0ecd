#!/usr/bin/env python3
"""Test a decoder of the .lmc format, version 1, with all vectors of this folder.

    run.py --decoder 'CMD FILE OUT BASE'

For each vector the command is run once, without a shell. In it, FILE stands for the compressed file, OUT for the file
that it has to write, and BASE for the bases, in order, each a raw file: a word BASE becomes one word for each of them,
and takes along the word before it if that begins with a dash. Words that stand for nothing there are added at the end,
FILE first. Two that work:

    run.py --decoder 'python -m lmc.decode FILE -o OUT -b BASE'
    run.py --decoder 'lmc decompress -f FILE -o OUT --base BASE'

A valid file must be restored, bit for bit, with exit status 0. A broken one must be refused with a status from 1 to
127: a signal, or more seconds than --timeout, is a fault. Files that only break the rules of an optional part (a field
"optional" in bad.json) may be restored, too; they are counted apart.

The exit status is 0 if the decoder is right, 1 if it is not, 2 if it could not be tested. It takes nothing but Python
3.10, and no network.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).resolve().parent


class Vector(NamedTuple):
    """A file, and what is to become of it."""

    name: str
    file: bytes
    bases: list[bytes]
    raw: bytes | None  # None: it is to be refused
    rule: str
    optional: bool


def vectors() -> Iterator[Vector]:
    """Read the vectors, valid ones first."""
    for path in sorted(FOLDER.glob("*.lmc")):
        bases, raw = [], path.with_suffix(".raw").read_bytes()
        while (base := path.with_suffix(f".base{len(bases) + 1}")).exists():
            bases.append(base.read_bytes())
        about = json.loads(path.with_suffix(".json").read_text("utf-8"))
        yield Vector(path.stem, path.read_bytes(), bases, raw, f"§{about['section']}: {about['shows']}", False)
    for bad in json.loads((FOLDER / "bad.json").read_text("utf-8")):
        file, bases = bytes.fromhex(bad["file"]), [bytes.fromhex(base) for base in bad["bases"]]
        rule = f"§{bad['section']}: {bad['rule']}"
        yield Vector(f"bad/{bad['name']}", file, bases, None, rule, "optional" in bad)


def command(decoder: list[str], file: Path, out: Path, bases: list[Path]) -> list[str]:
    """Return the command of a decoder for a vector."""
    words: list[str] = []
    for word in [*decoder, *(word for word in ("FILE", "OUT", "BASE") if word not in decoder)]:
        if word != "BASE":
            words.append({"FILE": str(file), "OUT": str(out)}.get(word, word))
            continue
        option = [words.pop()] if len(words) > 1 and words[-1].startswith("-") else []
        for base in bases:
            words += [*option, str(base)]
    return words


def fault(vector: Vector, decoder: list[str], timeout: float) -> str | None:
    """Run a decoder on a vector; return what is wrong, if anything is."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file, out = folder / "file.lmc", folder / "out"
        file.write_bytes(vector.file)
        bases = [folder / f"base{i}" for i in range(1, len(vector.bases) + 1)]
        for path, raw in zip(bases, vector.bases, strict=True):
            path.write_bytes(raw)
        words = command(decoder, file, out, bases)
        try:
            done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout, check=False)
        except subprocess.TimeoutExpired:
            return f"takes more than {timeout:g} s"
        said = done.stderr.decode(errors="replace").strip().splitlines()
        status = f"status {done.returncode}" + (f", {said[-1]}" if said else "")
        if vector.raw is None:
            refused = 1 <= done.returncode <= 127
            return None if refused or (vector.optional and done.returncode == 0) else f"is not refused ({status})"
        if done.returncode != 0:
            return f"is not restored ({status})"
        if not out.exists():
            return "is restored, but there is no output"
        return None if out.read_bytes() == vector.raw else "is restored to other bytes"


def main() -> int:
    """Test a decoder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--decoder", metavar="COMMAND", required=True, help="the command of the decoder")
    parser.add_argument("--only", metavar="PATTERN", default="*", help="vectors with such a name, as bad/frame-*")
    parser.add_argument("--timeout", metavar="SECONDS", type=float, default=60, help="for one file (default: 60)")
    parser.add_argument("--jobs", metavar="N", type=int, default=os.cpu_count() or 1, help="commands at a time")
    options = parser.parse_args()
    chosen = [vector for vector in vectors() if fnmatch.fnmatchcase(vector.name, options.only)]
    if not chosen:
        parser.error(f"no vector has a name like {options.only}")
    decoder = shlex.split(options.decoder)
    try:
        with ThreadPoolExecutor(options.jobs) as pool:
            faults = list(pool.map(lambda vector: fault(vector, decoder, options.timeout), chosen))
    except OSError as error:
        parser.error(f"the decoder cannot be run: {error}")
    for vector, what in zip(chosen, faults, strict=True):
        if what is not None:
            print(f"{vector.name} {what}\n    {vector.rule}")
    kinds = [
        ("valid files restored", [vector.raw is not None for vector in chosen]),
        ("broken files refused", [vector.raw is None and not vector.optional for vector in chosen]),
        ("files of optional parts", [vector.optional for vector in chosen]),
    ]
    for what, of_kind in kinds:
        right = sum(fault is None for fault, counts in zip(faults, of_kind, strict=True) if counts)
        print(f"{right} of {sum(of_kind)} {what}")
    return 1 if any(faults) else 0


if __name__ == "__main__":
    sys.exit(main())
