#!/usr/bin/env python3
"""Fails unless every crate that lmc ships or builds with is under a permissive licence and comes from crates.io.

deny.toml says which licences these are. `packaging/deny.sh` checks the same and more, with a program that takes minutes
to build.
"""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: What cargo-deny allows, too.
ALLOWED = frozenset(tomllib.loads((ROOT / "deny.toml").read_text())["licenses"]["allow"])
REGISTRY = "registry+https://github.com/rust-lang/crates.io-index"


def permissive(expression: str) -> bool:
    """Whether an SPDX expression (OR, AND, WITH, parentheses) can be satisfied by allowed licences alone."""
    tokens = re.findall(r"[()]|[^\s()]+(?:\s+WITH\s+[^\s()]+)?", expression.replace("/", " OR "))

    def either() -> bool:
        value = both()
        while tokens and tokens[0] == "OR":
            tokens.pop(0)
            value |= both()
        return value

    def both() -> bool:
        value = one()
        while tokens and tokens[0] == "AND":
            tokens.pop(0)
            value &= one()
        return value

    def one() -> bool:
        token = tokens.pop(0)
        if token != "(":
            return " ".join(token.split()) in ALLOWED
        value = either()
        if not tokens or tokens.pop(0) != ")":
            raise ValueError(f"unbalanced licence expression: {expression}")
        return value

    value = either()
    if tokens:
        raise ValueError(f"cannot read the licence expression {expression!r}")
    return value


def main() -> None:
    command = ["cargo", "metadata", "--format-version", "1", "--locked"]
    packages = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["packages"]
    bad = []
    for package in packages:
        if package["source"] is not None and package["source"] != REGISTRY:
            bad.append(f"{package['name']} {package['version']} comes from {package['source']}")
        if not package["license"] or not permissive(package["license"]):
            bad.append(f"{package['name']} {package['version']} is under {package['license']}")
    if bad:
        sys.exit("\n".join(bad))
    print(f"{len(packages)} crates, all permissive and from crates.io")


if __name__ == "__main__":
    main()
