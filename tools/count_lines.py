#!/usr/bin/env python3
"""Counts the lines of the tracked files by purpose: count_lines.py [COMMIT]

Product is what users get: the source of the published crates and of the Python package. The unit tests inside these
files (`#[cfg(test)]` modules at their end, and files and folders named for tests) are counted apart.
"""

import re
import subprocess
import sys
from collections import Counter

SUFFIXES = (".rs", ".py", ".pyi", ".sh", ".md")
# Crates and folders that only tests use.
FOR_TESTS = ("crates/lmc-testing/", "crates/lmc-test-inputs/", "fuzz/", "testdata/")
UNIT_TESTS = re.compile(r"/(tests|conformance|testing)(/|\.rs$)")
INLINE = re.compile(r"^#\[cfg\(test\)\]\nmod \w+ \{", re.MULTILINE)


def git(*args):
    return subprocess.run(["git", *args], check=True, capture_output=True).stdout.decode("utf-8", "replace")


def purpose(path):
    if path.endswith(".md"):
        return "documents"
    if path.startswith(FOR_TESTS) or re.match(r"crates/[^/]+/examples/", path):
        return "test support and oracles"
    if re.match(r"crates/[^/]+/(tests|benches)/", path):
        return "tests"
    if path.startswith("crates/"):
        return "unit tests" if UNIT_TESTS.search(path) else "product"
    return "tools, bench, packaging, examples"


def main():
    commit = sys.argv[1] if len(sys.argv) > 1 else "HEAD"
    lines, crates, words = Counter(), Counter(), 0
    for path in git("ls-tree", "-r", "-z", "--name-only", commit).split("\0"):
        if not path.endswith(SUFFIXES):
            continue
        text = git("show", f"{commit}:{path}")
        total, kind = text.count("\n"), purpose(path)
        if kind == "documents":
            words += len(text.split())
        inline = INLINE.search(text) if kind == "product" else None
        tests = total - text.count("\n", 0, inline.start()) if inline else 0
        lines[kind] += total - tests
        lines["unit tests"] += tests
        if kind == "product":
            crates["/".join(path.split("/")[:3])] += total - tests
    for kind, count in sorted(lines.items()):
        print(f"{count:8}  {kind}" + (f", {words} words" if kind == "documents" else ""))
        if kind == "product":
            for crate, n in sorted(crates.items()):
                print(f"{n:12}  {crate}")
    print(f"{lines['product'] + lines['unit tests']:8}  product with its unit tests")


if __name__ == "__main__":
    main()
