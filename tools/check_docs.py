#!/usr/bin/env python3
"""Checks the documentation against the repository.

    check_docs.py links            links between documents resolve, paths named in backquotes exist, and the maps of
                                   ARCHITECTURE.md name every module
    check_docs.py versions         documents require the versions that the packages require
    check_docs.py figures          docs/benchmarks.md and the figures of README.md are those of bench/results; commits
                                   named beside measurements are ancestors of this one, and write the version of the
                                   format that docs/format.md defines now

check_examples.py runs its examples.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Backquoted text that begins with one of these is a path of the repository.
FOLDERS = ("crates/", "docs/", "fuzz/", "bench/", "testdata/", "tools/", "packaging/", ".github/", ".ci/")


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


def check_maps():
    """The modules of crates and of the Python package that the maps of ARCHITECTURE.md do not name."""
    wrong, count = [], 0
    _, *maps = re.split(r"^## Map of `(.+)`$", (ROOT / "ARCHITECTURE.md").read_text(), flags=re.M)
    for crate, text in zip(maps[::2], maps[1::2], strict=True):
        quoted = re.findall(r"`([^`\n]+)`", text.split("\n## ")[0])
        named = {re.sub(r"^lmc\.|\.(rs|pyi?)$|/$", "", name).rsplit("/", 1)[-1] for name in quoted}
        paths = (re.match(rf"{crate}/(?:src|python/lmc)/(\w+)(?:\.rs|\.pyi?|/)", path) for path in tracked_paths())
        modules = {path[1] for path in paths if path} - {"lib", "main", "__init__", "__main__"}
        count += len(modules)
        wrong += [f"ARCHITECTURE.md: the map of {crate} does not name {module}" for module in sorted(modules - named)]
    return wrong, count


# The source of each required version, and the statements of documents: each pattern has the version as its group.
VERSIONS = (
    (
        "Cargo.toml",
        r'^rust-version = "(.+)"',
        {"README.md": r"Rust \(([\d.]+) or later\)", "tools/setup.sh": r"Rust ([\d.]+)"},
    ),
    ("pyproject.toml", r'^requires-python = ">=(.+)"', {"docs/python.md": r"Python ([\d.]+) and later"}),
    (
        "pyproject.toml",
        r'^torch = .*"torch>=([\d.]+)"',
        {"docs/python.md": r"`lmc.torch` and `lmc.dcp` need\s+torch ([\d.]+) or later"},
    ),
)


def check_versions():
    wrong, count = [], 0
    for package, pattern, documents in VERSIONS:
        (required,) = re.findall(pattern, (ROOT / package).read_text(), re.M)
        for document, said in documents.items():
            count += 1
            found = set(re.findall(said, (ROOT / document).read_text()))
            if found != {required}:
                names = ", ".join(sorted(found)) or "none"
                wrong.append(f"{document}: has {names} for {said!r}, and {package} requires {required}")
    # The versions that are tested.
    (tested,) = re.findall(r"^    torch==([\d.]+)", (ROOT / "test").read_text(), re.M)
    for required in re.findall(r'"torch>=([\d.]+)"', (ROOT / "pyproject.toml").read_text()):
        count += 1
        if [int(n) for n in tested.split(".")] < [int(n) for n in required.split(".")]:
            wrong.append(f"test: installs torch {tested}, and pyproject.toml requires {required}")
    return wrong, count


# The pages with measurements, and the version of the format in docs/format.md.
MEASURED = ("README.md", "docs/benchmarks.md", "docs/study.md")
FORMAT_VERSION = re.compile(r"`u16` version: (\w+)")


def git(*arguments):
    """What git prints; `None` if it fails."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else None


def figures_of(document, text, now):
    """What is wrong with the commits that a page names, and how many it names."""
    commits = re.findall(r"\bcommit\s+([0-9a-f]{7,40})\b", text)
    wrong = [] if commits else [f"{document}: names no commit beside its measurements"]
    for commit in commits:
        if git("merge-base", "--is-ancestor", commit, "HEAD") is None:
            wrong.append(f"{document}: commit {commit} is no ancestor of this one: measure again (bench/run)")
            continue
        then = FORMAT_VERSION.search(git("show", f"{commit}:docs/format.md") or "")
        if not then or then[1] != now:
            wrote = then[1] if then else "unknown"
            wrong.append(f"{document}: commit {commit} writes format {wrote}, not {now}: measure again (bench/run)")
    return wrong, len(commits)


def check_figures():
    sys.path.insert(0, str(ROOT / "bench"))
    import report

    wrong = [
        f"{path.relative_to(ROOT)}: differs from what bench/run --report writes"
        for path, text in report.pages().items()
        if path.read_text() != text
    ]
    of_commits, count = check_commits()
    return wrong + of_commits, count + 2


def check_commits():
    if git("rev-parse", "--is-shallow-repository") != "false":
        print("no history here: the commits beside measurements are not checked")
        return [], 1
    now = FORMAT_VERSION.search((ROOT / "docs/format.md").read_text())[1]
    found = [figures_of(document, (ROOT / document).read_text(), now) for document in MEASURED]
    return [w for wrong, _ in found for w in wrong], sum(count for _, count in found)


def main():
    match sys.argv[1:]:
        case ["links"]:
            wrong, count = (of_links + of_maps for of_links, of_maps in zip(check_links(), check_maps(), strict=True))
        case ["versions"]:
            wrong, count = check_versions()
        case ["figures"]:
            wrong, count = check_figures()
        case _:
            sys.exit(__doc__)
    if wrong or not count:
        sys.exit("\n".join(wrong) or "nothing to check: that cannot be right")
    print(f"{count} checked")


if __name__ == "__main__":
    main()
