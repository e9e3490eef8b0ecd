#!/usr/bin/env python3
"""Checks the promise of version 1: what earlier releases wrote is read, and what this one writes, they read.

written.py make LMC             writes testdata/written/VERSION with that program, once for each release
written.py unchanged            nothing in testdata/written, and no frozen vector, differs from what it was
written.py freeze               adds the vectors of stores to their frozen ones (format1 --freeze does so for files)
written.py read LMC             that program restores everything in testdata/written
written.py today LMC PYTHON     what that program writes of testdata is restored by the decoders, in Python, of the
                                newest release of version 1; before the first release, by those of this commit
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "testdata"
WRITTEN, FROZEN, SUMS = DATA / "written", DATA / "format1" / "frozen.txt", "SHA256SUMS"
FROZEN_STORES = DATA / "store1" / "frozen.txt"
LEVELS = ("fast", "default", "max")
SMALL = (
    *(f"small/{name}.safetensors" for name in ("every-dtype", "odd-names", "run-sizes", "special-values", "unaligned")),
    *(f"layouts/{name}" for name in ("arrays.npz", "f32.npy", "kinds.gguf", "kinds.onnx", "torch/kinds.pt")),
    "small/zero-bytes.bin",
)
STEPS = (300, 301, 310)
DECODERS = ("crates/lmc-python/python/lmc/decode.py", "crates/lmc-python/tests/decode_store.py")
Restore = Callable[[Path, Path, list[Path]], list[str]]  # the command that restores a file with its bases, in order


def run(*command: object) -> str:
    """Run a command that has to succeed; return what it prints."""
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def digest(data: bytes) -> str:
    """Return the SHA-256 of bytes."""
    return hashlib.sha256(data).hexdigest()


def tensors(data: bytes) -> dict[str, tuple[str, list[int], bytes]]:
    """Return the tensors of a safetensors file: dtype, shape and bytes."""
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    header.pop("__metadata__", None)
    places = {name: [start + at for at in entry["data_offsets"]] for name, entry in header.items()}
    return {name: (e["dtype"], e["shape"], data[slice(*places[name])]) for name, e in header.items()}


def safetensors(contents: dict[str, tuple[str, list[int], bytes]]) -> bytes:
    """Return a safetensors file of tensors."""
    header, at = {}, 0
    for name, (dtype, shape, data) in contents.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + b"".join(data for _, _, data in contents.values())


def first_rows(data: bytes) -> bytes:
    """Return the first 2,048 bytes of each tensor of a safetensors file, as whole rows."""
    cut = {}
    for name, (dtype, shape, content) in tensors(data).items():
        rows = shape[0] if shape else 1
        kept = max(1, min(rows, 2048 * rows // max(1, len(content))))
        cut[name] = (dtype, [kept, *shape[1:]] if shape else shape, content[: kept * (len(content) // rows)])
    return safetensors(cut)


def precisions() -> bytes:
    """Return weights on a grid of 16 levels, and F32 in which every third is 0 with their BF16."""
    state, grid, floats = 1, [], []
    for i in range(8192):
        state = (state * 1103515245 + 12345) % 2**31
        grid.append((state >> 16) % 16 / 8 * (1 + i // 64 % 9))
        floats.append(0.0 if i % 3 == 0 else (state / 2**31 - 0.5) / 7)
    bits = [struct.unpack("<I", struct.pack("<f", x))[0] for x in floats]
    shape = [64, 128]
    return safetensors(
        {
            "grid": ("F32", shape, struct.pack("<8192f", *grid)),
            "master": ("F32", shape, struct.pack("<8192f", *floats)),
            "model": ("BF16", shape, struct.pack("<8192H", *((x + 0x7FFF + (x >> 16 & 1)) >> 16 for x in bits))),
        }
    )


def inputs(folder: Path, is_small: bool) -> Iterator[tuple[Path, Path | None]]:
    """Make the files that are compressed; yields each with its base, if it has one, which comes before it."""
    for name in SMALL:
        if (DATA / name).exists():
            yield Path(shutil.copy(DATA / name, folder)), None
    (folder / "precisions.safetensors").write_bytes(precisions())
    yield folder / "precisions.safetensors", None
    before = None
    for step in STEPS:
        state = (DATA / f"gpt-step{step}-state.safetensors").read_bytes()
        path = folder / f"state-{step}.safetensors"
        path.write_bytes(first_rows(state) if is_small else state)
        yield path, before
        before = path
    if not is_small:
        for path in (DATA / "minilm-f32.safetensors", DATA / "gpt-step310-weights.safetensors"):
            yield Path(shutil.copy(path, folder)), None


def write(lmc: str, folder: Path, is_small: bool) -> None:
    """Write files of all levels, with and without bases and digests, a store, and list.json, which has them all."""
    about: dict[str, Any] = {"files": {}, "store": {}}
    with tempfile.TemporaryDirectory() as name:
        steps = iter(STEPS)
        for path, base in inputs(Path(name), is_small):
            raw = path.read_bytes()
            for level in LEVELS:
                file = f"{path.name}.{level}.lmc"
                options = ["--digest"] if level == "max" else []
                if base is not None:
                    options += ["--base", str(base)]
                run(lmc, "compress", "-q", "-l", level, *options, "-o", folder / file, path)
                bases = [] if base is None else [f"{base.name}.{level}.lmc"]
                about["files"][file] = {"raw": digest(raw), "bases": bases}
            if path.name.startswith("state-"):
                step = next(steps)
                run(lmc, "snapshot", "save", "-q", folder / "store", path, "--step", step)
                about["store"][str(step)] = {path.name: digest(raw)}
    (folder / "list.json").write_text(json.dumps(about, indent=1) + "\n", "utf-8")


def read(folder: Path, restore: Restore, restore_step: Callable[[Path, str, Path], list[str]]) -> int:
    """Restore everything in a folder that `write` made; return how many files that was."""
    about = json.loads((folder / "list.json").read_text("utf-8"))
    with tempfile.TemporaryDirectory() as name:
        out = Path(name)
        for file, entry in about["files"].items():  # bases come first
            run(*restore(folder / file, out / file, [out / base for base in entry["bases"]]))
            if digest((out / file).read_bytes()) != entry["raw"]:
                sys.exit(f"{folder / file}: it is restored to other bytes")
        for step, files in about["store"].items():
            run(*restore_step(folder / "store", step, out / step))
            for path, expected in files.items():
                if digest((out / step / path).read_bytes()) != expected:
                    sys.exit(f"{folder / 'store'}: {path} of step {step} is restored to other bytes")
        return len(about["files"]) + sum(map(len, about["store"].values()))


def read_with(lmc: str, folder: Path) -> int:
    """Restore everything in a folder with the program."""

    def restore(file: Path, out: Path, bases: list[Path]) -> list[str]:
        return [lmc, "decompress", "-q", "-o", str(out), *(f"--base={base}" for base in bases), str(file)]

    def restore_step(store: Path, step: str, out: Path) -> list[str]:
        return [lmc, "snapshot", "restore", "-q", str(store), "--at", step, "-o", str(out)]

    return read(folder, restore, restore_step)


def release() -> str | None:
    """Return the newest tag of version 1, if there is one."""
    return next(iter(run("git", "-C", ROOT, "tag", "--list", "v1.*", "--sort=-v:refname").split()), None)


def at(tag: str | None, path: str) -> bytes:
    """Return a file of a release, or of the working tree."""
    if tag is None:
        return (ROOT / path).read_bytes()
    return subprocess.run(["git", "-C", ROOT, "show", f"{tag}:{path}"], capture_output=True, check=True).stdout


def today(lmc: str, python: str) -> None:
    """Restore what the program writes with the decoders of the newest release."""
    tag = release()
    with tempfile.TemporaryDirectory() as name:
        folder, package = Path(name, "written"), Path(name, "package", "lmc")
        folder.mkdir()
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
        (package / "decode.py").write_bytes(at(tag, DECODERS[0]))
        (store := package.parent / "decode_store.py").write_bytes(at(tag, DECODERS[1]))
        os.environ["PYTHONPATH"] = str(package.parent)
        write(lmc, folder, is_small=False)

        def restore(file: Path, out: Path, bases: list[Path]) -> list[str]:
            of_bases = [word for base in bases for word in ("-b", str(base))]
            return [python, "-m", "lmc.decode", str(file), "-o", str(out), *of_bases]

        count = read(folder, restore, lambda path, step, out: [python, str(store), str(path), str(out), step])
    print(f"{count} files of today are read by the decoders of {tag or 'this commit'}")


def store_vectors() -> list[str]:
    """Return a line for each file of the test stores, and for each entry of the lists of changed ones."""
    folder = FROZEN_STORES.parent
    paths = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    lists = ("good.json", "bad.json")
    lines = [f"{digest((folder / x).read_bytes())} {x}" for x in paths if x not in (*lists, "README.md", "frozen.txt")]
    for name in lists:
        entries = json.loads((folder / name).read_text("utf-8"))
        lines += [f"{digest(json.dumps(x, sort_keys=True).encode())} {name} {x['name']}" for x in entries]
    return lines


def frozen_stores() -> list[str]:
    """Return the lines of all vectors of stores, if no frozen one is missing or differs."""
    lines, frozen = store_vectors(), FROZEN_STORES.read_text("utf-8").splitlines() if FROZEN_STORES.exists() else []
    if gone := {*frozen} - {*lines}:
        sys.exit(f"{FROZEN_STORES}: {len(gone)} vectors differ, such as {min(gone)}; make new ones beside them")
    return lines


def unchanged() -> None:
    """Compare what is never to change with its digests, and with the newest release."""
    if len(frozen_stores()) < 300:
        sys.exit(f"{FROZEN_STORES}: too few vectors of stores")
    for folder in sorted(path for path in WRITTEN.iterdir() if path.is_dir()):
        there = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
        there.pop(SUMS)
        sums = {name: digest(path.read_bytes()) for name, path in there.items()}
        lines = "".join(f"{sum_}  {name}\n" for name, sum_ in sorted(sums.items()))
        if lines != (folder / SUMS).read_text("utf-8"):
            sys.exit(f"{folder}: its files are not those of {SUMS}; what a release wrote never changes")
    if (tag := release()) is not None:
        for path in (FROZEN, FROZEN_STORES):
            gone = set(at(tag, str(path.relative_to(ROOT))).splitlines()) - set(path.read_bytes().splitlines())
            if gone:
                sys.exit(f"{path}: {len(gone)} vectors are not those of {tag}; make new ones beside them")
        changed = run("git", "-C", ROOT, "diff", "--name-only", "--diff-filter=a", tag, "--", WRITTEN)
        if changed:
            sys.exit(f"{WRITTEN} differs from {tag}: {changed}")


def main() -> None:
    """Check, or make, what keeps the promise."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("make", "unchanged", "freeze", "read", "today"))
    parser.add_argument("lmc", nargs="?", default="lmc")
    parser.add_argument("python", nargs="?", default=sys.executable)
    options = parser.parse_args()
    if options.what == "make":
        folder = WRITTEN / run(options.lmc, "--version").split()[1]
        folder.mkdir(parents=True)
        write(options.lmc, folder, is_small=True)
        files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
        lines = [f"{digest((folder / name).read_bytes())}  {name}\n" for name in files]
        (folder / SUMS).write_text("".join(lines), "utf-8")
    elif options.what == "unchanged":
        unchanged()
    elif options.what == "freeze":
        FROZEN_STORES.write_text("".join(f"{line}\n" for line in frozen_stores()), "utf-8")
    elif options.what == "today":
        today(options.lmc, options.python)
    else:
        counts = [read_with(options.lmc, path) for path in sorted(WRITTEN.iterdir()) if path.is_dir()]
        if not counts:
            sys.exit(f"{WRITTEN}: nothing was written")
        print(f"{sum(counts)} files of {len(counts)} releases are restored")


if __name__ == "__main__":
    main()
