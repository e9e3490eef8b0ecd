#!/usr/bin/env python3
"""Checks the documentation against the repository.

    check_docs.py links            links between documents resolve, and paths named in backquotes exist
    check_docs.py commands LMC     the README's commands run, with LMC as `lmc`, and restore what they compressed
    check_docs.py python           the Python blocks of the README and of docs/python.md run, in this Python
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODEL = ROOT / "testdata" / "gpt-step310-weights.safetensors"
# Backquoted text that begins with one of these is a path of the repository.
FOLDERS = ("crates/", "docs/", "fuzz/", "bench/", "testdata/", "tools/", ".ci/")


def tracked_paths():
    """Every path that git tracks, or would if it were added."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")[:-1]


def without_code(text):
    """The text with fenced blocks emptied, line by line."""
    out, fence = [], None
    for line in text.split("\n"):
        mark = re.match(r" {0,3}(```+|~~~+)", line)
        if mark and (fence is None or line.strip() == fence):
            fence = None if fence else mark.group(1)
            line = ""
        out.append("" if fence else line)
    return "\n".join(out)


def anchors(path):
    """The anchors that GitHub gives to the headings of a document."""
    found, seen = set(), {}
    for heading in re.findall(r"^#{1,6} +(.+?) *#*$", without_code(path.read_text()), re.M):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        count = seen[slug] = seen.get(slug, -1) + 1
        found.add(f"{slug}-{count}" if count else slug)
    return found


def expand(path):
    """`a/{b,c}.rs` as its alternatives."""
    braces = re.search(r"\{([^{}]*)\}", path)
    if not braces:
        return [path]
    head, tail = path[: braces.start()], path[braces.end() :]
    return [p for choice in braces.group(1).split(",") for p in expand(head + choice.strip() + tail)]


def check_links():
    wrong, count = [], 0
    tracked = tracked_paths()
    for document in (ROOT / path for path in tracked if path.endswith(".md")):
        text = without_code(document.read_text())
        where = document.relative_to(ROOT)
        for link in re.findall(r"\]\(<?([^)\s>]+)>?\)", text):
            if re.match(r"[a-z]+:", link):
                continue
            count += 1
            name, _, anchor = link.partition("#")
            target = (document.parent / name).resolve() if name else document
            if not target.exists():
                wrong.append(f"{where}: no such file: {link}")
            elif anchor and target.suffix == ".md" and anchor not in anchors(target):
                wrong.append(f"{where}: no such heading: {link}")
        for quoted in re.findall(r"`([^`\n]+)`", text):
            if re.fullmatch(r"[\w/-]+(\.rs|\.py|\.sh|/)", quoted):
                count += 1
                if not any(f"/{quoted}" in f"/{path}" for path in tracked):
                    wrong.append(f"{where}: no path of the repository has {quoted} in it")
                continue
            if not quoted.startswith(FOLDERS) or re.search(r"[\s…<>$]|NNNN", quoted):
                continue
            count += 1
            for path in expand(quoted):
                if not any(ROOT.glob(path)) if "*" in path else not (ROOT / path).exists():
                    wrong.append(f"{where}: no such path: {path}")
    return wrong, count


def check_commands(lmc):
    """Runs the README's `$ lmc …` lines in order, in an empty folder that holds model.safetensors and two snapshots."""
    readme = (ROOT / "README.md").read_text()
    wrong, count = [], 0
    with tempfile.TemporaryDirectory() as folder:
        bin_folder, work = Path(folder, "bin"), Path(folder, "work")
        bin_folder.mkdir()
        work.mkdir()
        (bin_folder / "lmc").symlink_to(lmc.resolve())
        for name in ("model", "step1000", "step2000"):
            shutil.copy(MODEL, work / f"{name}.safetensors")
        env = os.environ | {"PATH": f"{bin_folder}:{os.environ['PATH']}"}
        for block in re.findall(r"^```console\n(.*?)^```", readme, re.M | re.S):
            for command in re.findall(r"^\$ (.*)$", block, re.M):
                count += 1
                program = command.split()[0]
                if program == "lmc":
                    done = subprocess.run(["bash", "-c", command], cwd=work, env=env, capture_output=True, text=True)
                    if done.returncode:
                        wrong.append(f"README.md: `{command}` exits {done.returncode}: {done.stderr.strip()}")
                elif program.startswith("./"):
                    if not os.access(ROOT / program, os.X_OK):
                        wrong.append(f"README.md: {program} is no program")
        for restored in work.glob("restored*"):
            count += 1
            if restored.read_bytes() != MODEL.read_bytes():
                wrong.append(f"README.md: {restored.name} is not the file that was compressed")
        if not any(work.glob("restored*")):
            wrong.append("README.md: no command writes a file named restored…, so nothing was compared")
    return wrong, count


def check_python():
    """Runs the Python blocks of each document as one program, in a folder with model.safetensors and two snapshots."""
    wrong, count = [], 0
    for document in ("README.md", "docs/python.md"):
        blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / document).read_text(), re.M | re.S)
        if not blocks:
            wrong.append(f"{document}: has no block of Python")
        count += len(blocks)
        with tempfile.TemporaryDirectory() as work:
            for name in ("model", "step1000", "step2000"):
                shutil.copy(MODEL, Path(work, f"{name}.safetensors"))
            command = [sys.executable, "-c", "\n".join(blocks)]
            done = subprocess.run(command, cwd=work, capture_output=True, text=True)
            if done.returncode:
                wrong.append(f"{document}: {done.stderr.strip()}")
    return wrong, count


def main():
    match sys.argv[1:]:
        case ["links"]:
            wrong, count = check_links()
        case ["commands", lmc]:
            wrong, count = check_commands(Path(lmc))
        case ["python"]:
            wrong, count = check_python()
        case _:
            sys.exit(__doc__)
    if wrong or not count:
        sys.exit("\n".join(wrong) or "nothing to check: that cannot be right")
    print(f"{count} checked")


if __name__ == "__main__":
    main()
