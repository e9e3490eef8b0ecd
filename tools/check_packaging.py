#!/usr/bin/env python3
"""Checks the files of packaging/ with the programs that use them.

check_packaging.py magic LMC    file(1) recognises what LMC, the program, writes
check_packaging.py mime         update-mime-database accepts the media type, and makes of it what lmc.xml means
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MAGIC = ROOT / "packaging" / "lmc.magic"
XML = ROOT / "packaging" / "lmc.xml"
PLAIN = ROOT / "testdata" / "gpt-step310-weights.safetensors"
OLD, NEW = (ROOT / "testdata" / f"gpt-step{step}-state.safetensors" for step in (300, 310))
TYPE = "application/vnd.lmc"
START = b"\x89LMC\r\n\x1a\n"


def header(version: int, features: int, then: bytes = b"BLCK") -> bytes:
    """The first bytes of a file."""
    return START + version.to_bytes(2, "little") + b"\1\0" + features.to_bytes(4, "little") + then


def check_magic(lmc: str, folder: Path) -> list[str]:
    """The descriptions of files that LMC wrote, of others, and of other versions."""
    for output, *arguments in [
        ["plain.lmc", PLAIN],
        ["itself.lmc", NEW],
        ["delta.lmc", NEW, "--base", OLD],
    ]:
        subprocess.run([lmc, "compress", "-q", *arguments, "-o", folder / output], check=True)
    for name, data in [
        ("delta-only.lmc", header(1, 1, b"BASE")),
        ("newer.lmc", header(7, 17, b"BASE")),
    ]:
        (folder / name).write_bytes(data)
    shutil.copy(OLD, folder / "raw")
    (folder / "short").write_bytes(START[:7])
    (folder / "text-mode").write_bytes(START.replace(b"\r\n", b"\n") + header(1, 0)[8:])

    name = "lmc compressed checkpoint"
    expected = {
        "plain.lmc": f"{name}, version 1",
        "delta.lmc": f"{name}, version 1, delta, refers to itself",
        "delta-only.lmc": f"{name}, version 1, delta",
        "itself.lmc": f"{name}, version 1, refers to itself",
        "newer.lmc": f"{name}, version 7, delta, requires features that lmc 1.0 does not have",
    }
    others = ["raw", "short", "text-mode"]

    def said(*options: str) -> dict[str, str]:
        command = ["file", *options, "--no-pad", "--magic-file", str(MAGIC), *expected, *others]
        run = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
        if run.stderr:
            problems.append(f"file {' '.join(options)}: {run.stderr}")
        return dict(line.split(": ", 1) for line in run.stdout.splitlines())

    problems: list[str] = []
    compiled = subprocess.run(["file", "--checking-printout", "--magic-file", MAGIC], capture_output=True, text=True)
    problems += [s for s in compiled.stderr.splitlines() if "Warning" in s and "using regular magic file" not in s]
    problems += [f"file: exit status {compiled.returncode}"] if compiled.returncode else []
    described, types, suffixes = said(), said("--mime-type"), said("--extension")
    for file, description in expected.items():
        for what, value, right in [
            ("description", described[file], description),
            ("type", types[file], TYPE),
            ("suffix", suffixes[file], "lmc"),
        ]:
            if value != right:
                problems.append(f"{file}: the {what} is {value!r}, not {right!r}")
    problems += [f"{file}: is {types[file]}" for file in others if types[file] == TYPE]
    return problems


def check_mime(folder: Path) -> list[str]:
    """The media type as update-mime-database compiles it."""
    (folder / "mime" / "packages").mkdir(parents=True)
    shutil.copy(XML, folder / "mime" / "packages")
    # So that the program finds no other data.
    environment = os.environ | {"XDG_DATA_HOME": str(folder), "LC_ALL": "C"}
    command = ["update-mime-database", "-V", folder / "mime"]
    run = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    # An error in a file does not change the exit status.
    problems = [line for line in (run.stdout + run.stderr).splitlines() if "rror" in line or "Unknown" in line]
    for name, right in [
        ("types", TYPE.encode() + b"\n"),
        ("globs2", f"50:{TYPE}:*.lmc\n".encode()),
        ("magic", f"[60:{TYPE}]\n>0=".encode() + len(START).to_bytes(2, "big") + START + b"\n"),
    ]:
        value = (folder / "mime" / name).read_bytes()
        if right not in value:
            problems.append(f"{name}: has no {right!r}: {value!r}")
    return problems


def main(arguments: list[str]) -> int:
    """Run one of the checks."""
    with tempfile.TemporaryDirectory() as folder:
        match arguments:
            case ["magic", lmc]:
                problems = check_magic(lmc, Path(folder))
            case ["mime"]:
                problems = check_mime(Path(folder))
            case _:
                print(__doc__, file=sys.stderr)
                return 2
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
