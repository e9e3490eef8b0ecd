#!/usr/bin/env python3
"""Fails unless every crate that lmc ships or builds with is under a permissive licence and comes from crates.io."""

import json
import re
import subprocess
import sys

# CDLA-Permissive-2.0 is a licence for data: that of Mozilla's list of root certificates, which TLS needs.
ALLOWED = {
    "0BSD", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "CC0-1.0",
    "CDLA-Permissive-2.0", "ISC", "MIT", "NCSA", "Unicode-3.0", "Unlicense", "Zlib", "bzip2-1.0.6",
}  # fmt: skip
REGISTRY = "registry+https://github.com/rust-lang/crates.io-index"


def permissive(expression):
    """Whether an SPDX expression (OR, AND, WITH, parentheses) can be satisfied by allowed licences alone."""
    tokens = re.findall(r"[()]|[^\s()]+(?:\s+WITH\s+[^\s()]+)?", expression.replace("/", " OR "))

    def either():
        value = both()
        while tokens and tokens[0] == "OR":
            tokens.pop(0)
            value |= both()
        return value

    def both():
        value = one()
        while tokens and tokens[0] == "AND":
            tokens.pop(0)
            value &= one()
        return value

    def one():
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


def main():
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
