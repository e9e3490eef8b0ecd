#!/usr/bin/env python3
"""Checks packages for crates.io: check_crates.py FOLDER, which has the files NAME-VERSION.crate that cargo made.

A package has both licences, a README, what crates.io shows and searches, the libraries' names, and nothing but sources.
Its dependencies are of the registry, and those on the other packages are of exactly this version.
"""

import io
import sys
import tarfile
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
#: The packages, and what a program calls their libraries.
LIBRARIES = {
    "lmc-codec": "lmc",
    "lmc-codec-cli": "lmc_cli",
    "lmc-codec-inspect": "lmc_inspect",
    "lmc-codec-kernels": "lmc_kernels",
    "lmc-codec-layout": "lmc_layout",
    "lmc-codec-pool": "lmc_pool",
    "lmc-codec-store": "lmc_store",
}
#: What cargo adds.
CARGO = {"Cargo.lock", "Cargo.toml", "Cargo.toml.orig", ".cargo_vcs_info.json"}
OWN = {"LICENSE-APACHE", "LICENSE-MIT", "README.md", "build.rs"}
#: Of the compressed package: sources of an eighth of that are the most there is, and test data would not fit.
LIMIT = 1 << 20


def files_of(package: Path) -> dict[str, bytes]:
    """The files of a package by their paths in it."""
    found = {}
    with tarfile.open(package) as tar:
        for member in tar:
            content = tar.extractfile(member)
            _, _, path = member.name.partition("/")
            found[path] = content.read() if content else b""
    return found


def dependencies(manifest: dict[str, Any]) -> dict[str, Any]:
    """Every dependency by name, also optional ones, those of tests and those of some systems."""
    tables = [manifest, *manifest.get("target", {}).values()]
    kinds = ("dependencies", "dev-dependencies", "build-dependencies")
    return {name: entry for table in tables for kind in kinds for name, entry in table.get(kind, {}).items()}


def check(package: Path, name: str, expected: dict[str, Any]) -> list[str]:
    """The faults of a package, given the `workspace.package` of this repository."""
    wrong = []
    files = files_of(package)
    size = package.stat().st_size
    if size > LIMIT:
        wrong.append(f"has {size} bytes, and the limit is {LIMIT}")
    for path in sorted((CARGO | OWN) - {"build.rs", ".cargo_vcs_info.json"} - set(files)):
        wrong.append(f"has no {path}")
    for path in sorted(set(files) - CARGO - OWN):
        # Pages have a script and a style of their own.
        if not (path.startswith("src/") and path.endswith((".rs", ".js", ".css"))):
            wrong.append(f"has {path}, which is no source")
    for licence in ("LICENSE-APACHE", "LICENSE-MIT"):
        if licence in files and files[licence] != (ROOT / licence).read_bytes():
            wrong.append(f"{licence} is not that of the repository")
    manifest = tomllib.load(io.BytesIO(files.get("Cargo.toml", b"")))
    about = manifest.get("package", {})
    if about.get("name") != name:
        wrong.append(f"calls itself {about.get('name')}")
    for key in ("version", "edition", "rust-version", "license", "authors"):
        if about.get(key) != expected[key]:
            wrong.append(f"{key} is {about.get(key)!r}, and that of the workspace is {expected[key]!r}")
    for key in ("description", "readme", "keywords", "categories"):
        if not about.get(key):
            wrong.append(f"has no {key}")
    if manifest.get("lib", {}).get("name") != LIBRARIES[name]:
        wrong.append(f"its library is {manifest.get('lib', {}).get('name')}, and programs use {LIBRARIES[name]}")
    for key, entry in dependencies(manifest).items():
        entry = entry if isinstance(entry, dict) else {"version": entry}
        found = entry.get("package", key)
        if found in LIBRARIES and entry.get("version") != f"={expected['version']}":
            wrong.append(f"depends on {found} {entry.get('version')}, and needs ={expected['version']}")
        if found.startswith("lmc") and found not in LIBRARIES:
            wrong.append(f"depends on {found}, which is not published")
        if "path" in entry or "git" in entry or "version" not in entry:
            wrong.append(f"depends on {found} from elsewhere than the registry")
    return wrong


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = Path(sys.argv[1])
    expected = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]
    end = f"-{expected['version']}.crate"
    packages = {path.name.removesuffix(end): path for path in folder.glob(f"*{end}")}
    wrong = [f"{folder}: no package {name}{end}" for name in sorted(set(LIBRARIES) - set(packages))]
    wrong += [f"{packages[name]}: is not to be published" for name in sorted(set(packages) - set(LIBRARIES))]
    for name in sorted(set(LIBRARIES) & set(packages)):
        wrong += [f"{packages[name]}: {text}" for text in check(packages[name], name, expected)]
    if wrong:
        sys.exit("\n".join(wrong))
    for name, path in sorted(packages.items()):
        print(f"{name} {expected['version']}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
