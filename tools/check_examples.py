#!/usr/bin/env python3
"""Runs the examples of README.md, of docs/python.md and of the book in docs/book.

Each page runs in a folder of its own, which holds what `prepare` puts there. `commands` runs the commands of each page,
and then its blocks of Rust. `python` runs the pages that have blocks of Python, commands and blocks in their order,
with this Python, whose package must be the one to test: its command is then `lmc`.

Lines below a command are its output, where … stands for any text. A command fails exactly if its first line is an
error of lmc. `s3://bucket` is a directory, or else --bucket; with that only pages that name it run, without their Rust.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "testdata"
BUCKET = "s3://bucket"
#: Pages whose commands need files that their blocks of Python make.
NEED_PYTHON = {"docs/book/compress-a-bucket.md", "docs/book/many-ranks.md", "docs/book/resume-a-run.md"}
#: Programs that need the package: `commands` leaves them out.
OF_PYTHON = {"python"}
#: Programs that install things: ./test does that itself.
INSTALLERS = {"cargo", "pip"}


def pages():
    return ["README.md", "docs/python.md", *sorted(str(p.relative_to(ROOT)) for p in ROOT.glob("docs/book/*.md"))]


def blocks(text):
    """The language and the text of each fenced block, in order."""
    return re.findall(r"^```(console|python|rust)\n(.*?)^```$", text, re.M | re.S)


def commands(block):
    """Each command of a block of console, and the lines that it prints."""
    for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
        command, *shown = part.rstrip("\n").split("\n")
        yield command, shown


def with_bucket(text, page, bucket):
    """The text with a directory, or a prefix for this page alone, in place of the bucket that it names."""
    return text.replace(BUCKET, f"{bucket}/{Path(page).stem}" if bucket else "bucket")


def prepare(folder):
    """Files, three training states (the second one step after the first, the third ten), a directory and a model of a
    hub's cache for the first and the last, and a directory in place of a bucket."""
    originals = ((1000, 300), (1001, 301), (2000, 310))
    states = {step: DATA / f"gpt-step{original}-state.safetensors" for step, original in originals}
    shutil.copy(DATA / "gpt-step310-weights.safetensors", folder / "model.safetensors")
    for step, state in states.items():
        shutil.copy(state, folder / f"step{step}.safetensors")
        if step == 1001:
            continue
        checkpoint = folder / f"checkpoint-{step}"
        checkpoint.mkdir()
        shutil.copy(state, checkpoint / "model.safetensors")
        (checkpoint / "config.json").write_text('{"n_layer": 2}\n')
    shutil.copy(DATA / "layouts" / "torch" / "state.pt", folder / "optimizer.pt")
    shutil.copy(DATA / "layouts" / "types.gguf", folder / "model.gguf")
    for step in (1000, 2000):
        ranks = folder / "ckpts" / f"global_step{step}"
        ranks.mkdir(parents=True)
        for file in (DATA / "layouts" / "deepspeed").glob("*.pt"):
            shutil.copy(file, ranks)
    for name in ("bucket", "home"):
        (folder / name).mkdir()
    for name, step in (("org--base", 1000), ("user--tuned", 2000)):
        model = folder / "home" / ".cache" / "huggingface" / "hub" / f"models--{name}"
        (model / "blobs").mkdir(parents=True)
        (model / "snapshots" / "main").mkdir(parents=True)
        shutil.copy(states[step], model / "blobs" / str(step))
        (model / "snapshots" / "main" / "model.safetensors").symlink_to(f"../../blobs/{step}")
    for name in ("examples", "packaging"):
        (folder / name).symlink_to(ROOT / name)


def environment(folder):
    """With the folder's `bin`, where `lmc` is, before other programs, and with an author for git."""
    paths = [str(folder / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]]
    names = {f"GIT_{who}_{what}": "test" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    return os.environ | names | {"PATH": os.pathsep.join(paths), "HOME": str(folder / "home")}


def run_command(command, shown, folder):
    """Runs one command. Returns an error, or None."""
    program = command.split()[0]
    if program in INSTALLERS:
        return None
    if program in ("./demo", "./test"):
        return None if os.access(ROOT / program, os.X_OK) else f"`{command}`: there is no such program"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], cwd=folder, env=environment(folder), stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    fails = bool(shown) and shown[0].startswith("lmc: ")
    if (done.returncode != 0) != fails:
        return f"`{command}` exits {done.returncode}: {done.stdout.strip()}"
    printed = done.stdout.splitlines()
    for line in shown:
        pattern = ".*".join(map(re.escape, line.split("…")))
        if not any(re.fullmatch(pattern, p) for p in printed):
            return f"`{command}` does not print `{line}`, but: {done.stdout.strip()}"
    return None


def run_rust(page, text, folder, libraries):
    """Compiles and runs a page's blocks of Rust, in the folder. Returns an error, or None."""
    copy = folder / Path(page).name
    copy.write_text(text)
    found = [option for name, path in libraries for option in ("--extern", f"{name}={path}")]
    for path in sorted({Path(path).parent for _, path in libraries}):
        found += ["-L", f"dependency={path if path.name == 'deps' else path / 'deps'}"]
    command = ["rustdoc", "--test", "--edition", "2024", "--test-run-directory", folder, *found, copy]
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    ran = sum(int(n) for n in re.findall(r"^test result: .* (\d+) passed", done.stdout, re.M))
    return None if done.returncode == 0 and ran == len(re.findall(r"^```rust$", text, re.M)) else done.stdout.strip()


def compare_restored(folder):
    """Compares each file restored-NAME, or NAME in a directory `restored…`, with NAME. Returns errors and the number
    of comparisons."""
    wrong, count = [], 0
    for restored in folder.rglob("*"):
        path = restored.relative_to(folder)
        if path.parts[0].startswith("restored-"):
            original = folder / path.parts[0].removeprefix("restored-") / Path(*path.parts[1:])
        elif path.parts[0] == "restored":
            original = folder / Path(*path.parts[1:])
        else:
            continue
        if restored.is_file():
            count += 1
            if not original.is_file() or restored.read_bytes() != original.read_bytes():
                wrong.append(f"{path} is not {original.relative_to(folder)}")
    return wrong, count


def check_commands(lmc, libraries, bucket):
    wrong, count = [], 0
    for page in pages():
        text = (ROOT / page).read_text()
        if page in NEED_PYTHON or page == "docs/python.md" or (bucket and BUCKET not in text):
            continue
        text = with_bucket(text, page, bucket)
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            prepare(folder)
            (folder / "bin").mkdir()
            (folder / "bin" / "lmc").symlink_to(lmc.resolve())
            for language, block in blocks(text):
                for command, shown in commands(block) if language == "console" else ():
                    if command.split()[0] in OF_PYTHON:
                        continue
                    count += 1
                    if error := run_command(command, shown, folder):
                        wrong.append(f"{page}: {error}")
            errors, compared = compare_restored(folder)
            wrong += [f"{page}: {error}" for error in errors]
            if page == "README.md" and not compared:
                wrong.append(f"{page}: no command restores a file as restored-NAME, so nothing was compared")
            count += compared
            if not bucket and any(language == "rust" for language, _ in blocks(text)):
                count += 1
                if error := run_rust(page, text, folder, libraries):
                    wrong.append(f"{page}: {error}")
    return wrong, count


def program_of(text, folder):
    """The Python program that runs a page: its blocks, and its commands between them."""
    parts = [f"import sys; sys.path.append({str(ROOT / 'tools')!r}); import check_examples as _examples"]
    for language, block in blocks(text):
        if language == "python":
            parts.append(block)
        elif language == "console":
            for command, shown in commands(block):
                parts.append(f"_examples.must_run({command!r}, {shown!r}, {str(folder)!r})")
    return "\n".join(parts)


def must_run(command, shown, folder):
    """For `program_of`: runs a command, and ends the program if something is wrong."""
    if error := run_command(command, shown, Path(folder)):
        sys.exit(error)


def check_python(bucket):
    wrong, count = [], 0
    for page in pages():
        text = (ROOT / page).read_text()
        if not any(language == "python" for language, _ in blocks(text)):
            continue
        count += sum(language == "python" for language, _ in blocks(text))
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            prepare(folder)
            (folder / "bin").mkdir()
            (folder / "bin" / "lmc").write_text(f'#!/bin/sh\nexec {sys.executable} -m lmc "$@"\n')
            (folder / "bin" / "lmc").chmod(0o755)
            program = program_of(with_bucket(text, page, bucket), folder)
            command = [sys.executable, "-c", program]
            done = subprocess.run(command, cwd=folder, env=environment(folder), capture_output=True, text=True)
            if done.returncode:
                wrong.append(f"{page}: {done.stdout.strip()}{done.stderr.strip()}")
    return wrong, count


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bucket", help="s3://BUCKET/PREFIX to use in place of s3://bucket")
    modes = parser.add_subparsers(dest="mode", required=True)
    of_commands = modes.add_parser("commands")
    of_commands.add_argument("lmc", type=Path)
    of_commands.add_argument("--library", action="append", default=[], help="NAME=RLIB: a crate of the Rust blocks")
    modes.add_parser("python")
    args = parser.parse_args()
    if args.mode == "commands":
        libraries = [library.split("=", 1) for library in args.library]
        wrong, count = check_commands(args.lmc, libraries, args.bucket)
    else:
        wrong, count = check_python(args.bucket)
    if wrong or not count:
        sys.exit("\n".join(wrong) or "nothing to check: that cannot be right")
    print(f"{count} checked")


if __name__ == "__main__":
    main()
