#!/usr/bin/env python3
"""Drafts a release on GitHub: draft_release.py TAG FOLDER

TAG is vVERSION, the version of Cargo.toml, and CHANGELOG.md has a dated section on it, which becomes the text. FOLDER
has everything that is published, in any subfolders: crates, wheels, programs and bills of materials of every platform.
Their SHA-256 digests are added to them as SHA256SUMS. The command `gh` makes the draft; a person publishes it.
"""

import hashlib
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CRATES = ("lmc-codec", *(f"lmc-codec-{part}" for part in ("cli", "inspect", "kernels", "layout", "pool", "store")))
TARGETS = (
    "aarch64-apple-darwin",
    "aarch64-unknown-linux-gnu",
    "x86_64-apple-darwin",
    "x86_64-unknown-linux-gnu",
    "x86_64-unknown-linux-musl",
)
WHEELS = ("macosx_*_arm64", "macosx_*_x86_64", "manylinux2014_aarch64*", "manylinux2014_x86_64*")


def patterns(version: str) -> list[str]:
    """The names of the files that a release has."""
    # Python spells 1.0.0-rc.1 as 1.0.0rc1.
    wheel = f"lmc_codec-{version.replace('-rc.', 'rc')}-cp311-abi3-"
    return [
        *(f"{name}-{version}.crate" for name in CRATES),
        *(f"{wheel}{platform}.whl" for platform in WHEELS),
        *(f"lmc-{version}-{target}.tar.gz" for target in TARGETS),
        f"lmc-{version}.cdx.json",
        f"lmc_codec-{version}.cdx.json",
    ]


def section(changelog: str, version: str) -> str:
    """The changelog's section of a version."""
    found = re.search(rf"^## \[{re.escape(version)}\] - (.+)\n([\s\S]*?)(?=^## |\Z)", changelog, re.M)
    if not found:
        sys.exit(f"CHANGELOG.md has no section ## [{version}] - DATE: write it and tag again")
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", found[1]):
        sys.exit(f"CHANGELOG.md: the date of {version} is {found[1]!r}, no date like 2026-01-31")
    return found[2].strip() + "\n"


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    tag, folder = sys.argv[1], Path(sys.argv[2]).resolve()
    version = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    if tag != f"v{version}":
        sys.exit(f"the tag is {tag}, and Cargo.toml has version {version}: the tag must be v{version}")
    notes = section((ROOT / "CHANGELOG.md").read_text(), version)
    files = []
    for pattern in patterns(version):
        found = sorted(folder.rglob(pattern))
        if len(found) != 1:
            sys.exit(f"{folder}: {len(found)} files are named {pattern}, and a release has one")
        files += found
    sums = "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files)
    with tempfile.TemporaryDirectory() as work:
        (Path(work) / "SHA256SUMS").write_text(sums)
        (Path(work) / "notes.md").write_text(notes)
        draft = ["gh", "release", "create", tag, "--draft", "--verify-tag", "--title", f"lmc {version}"]
        draft += ["--prerelease"] if "-" in version else []
        draft += ["--notes-file", f"{work}/notes.md", f"{work}/SHA256SUMS", *map(str, files)]
        subprocess.run(draft, cwd=ROOT, check=True)


if __name__ == "__main__":
    main()
