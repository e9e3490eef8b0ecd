#!/usr/bin/env python3
"""Writes the bills of materials (CycloneDX 1.5) of the program and of the Python module: packaging/sbom.py

They are dist/lmc-VERSION.cdx.json and dist/lmc_codec-VERSION.cdx.json below cargo's build folder, and list every crate
that is compiled into the two on some platform, or builds them. Fails unless each has a permissive licence and the lists
have every crate that cargo resolves. Needs cargo-cyclonedx, which it installs with cargo below the build folder.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

from check_licences import permissive  # noqa: E402

CYCLONEDX = "0.5.9"
#: A package, its folder, and the name of its list.
OUTPUTS = (
    ("lmc-codec-cli", "lmc-cli", "lmc-{}.cdx.json"),
    ("lmc-python", "lmc-python", "lmc_codec-{}.cdx.json"),
)
#: What cargo-cyclonedx writes into the folder of each package of the workspace.
WRITTEN = "bill-of-materials.cdx"


def output_of(*command: str, **env: str) -> str:
    """The output of a command."""
    return subprocess.run(command, cwd=ROOT, env=os.environ | env, check=True, stdout=subprocess.PIPE, text=True).stdout


def installed(target: Path) -> Path:
    """cargo-cyclonedx, of the version that this script was written for."""
    folder = target / f"cyclonedx-{CYCLONEDX}"
    program = folder / "bin" / "cargo-cyclonedx"
    if not program.exists():
        install = ["cargo", "install", "--quiet", "--locked", "--root", str(folder), f"cargo-cyclonedx@{CYCLONEDX}"]
        subprocess.run(install, cwd=ROOT, check=True)
    return program


def resolved(package: str) -> set[str]:
    """`NAME VERSION` of each crate that builds a package or is compiled into it, itself left out."""
    edges = ["--edges", "normal,build", "--target", "all", "--prefix", "none", "--format", "{p}"]
    lines = output_of("cargo", "tree", "--locked", "--package", package, *edges).splitlines()
    crates = {" ".join(line.split()[:2]).replace(" v", " ") for line in lines if line.strip()}
    return {crate for crate in crates if crate.split()[0] != package}


def crate_of(component: Any) -> str:
    return f"{component['name']} {component['version']}"


def cleaned(text: str, crates: set[str]) -> Any:
    """A list of these crates alone, without the folders of the machine that made it.

    cargo-cyclonedx lists the crates that the features of the whole workspace need, which are more.
    """
    text = re.sub(r"\?download_url=file://[^\"#]*", "", text)
    bill = json.loads(text.replace(f"path+file://{ROOT}", "path+file:///lmc"))
    unused = {c["bom-ref"] for c in bill["components"] if crate_of(c) not in crates}
    bill["components"] = [c for c in bill["components"] if c["bom-ref"] not in unused]
    bill["dependencies"] = [d for d in bill["dependencies"] if d["ref"] not in unused]
    for entry in bill["dependencies"]:
        if "dependsOn" in entry:
            entry["dependsOn"] = [ref for ref in entry["dependsOn"] if ref not in unused]
    return bill


def wrong_with(bill: Any, crates: set[str]) -> list[str]:
    """The faults of a list that should have these crates."""
    listed = {crate_of(c) for c in bill["components"]}
    wrong = [f"does not list {crate}" for crate in sorted(crates - listed)]
    refs = {c["bom-ref"] for c in (bill["metadata"]["component"], *bill["components"])}
    for entry in bill["dependencies"]:
        for ref in {entry["ref"], *entry.get("dependsOn", [])} - refs:
            wrong.append(f"has the dependency {ref}, which it does not list")
    for component in (bill["metadata"]["component"], *bill["components"]):
        licences = [licence.get("expression", "") for licence in component.get("licenses", [])]
        if not licences or not all(text and permissive(text) for text in licences):
            wrong.append(f"{crate_of(component)} is under {licences or 'no licence'}")
    if "file:///" in json.dumps(bill).replace("path+file:///lmc", ""):
        wrong.append("has a path of this machine in it")
    return wrong


def main() -> None:
    if len(sys.argv) != 1:
        sys.exit(__doc__)
    metadata = json.loads(output_of("cargo", "metadata", "--format-version", "1", "--no-deps"))
    versions = {p["name"]: p["version"] for p in metadata["packages"]}
    target = Path(metadata["target_directory"])
    program = installed(target)
    # The same list for the same commit.
    when = output_of("git", "log", "-1", "--format=%ct").strip()
    describe = ["--format", "json", "--spec-version", "1.5", "--target", "all", "--override-filename", WRITTEN]
    try:
        output_of(str(program), "cyclonedx", "--quiet", *describe, SOURCE_DATE_EPOCH=when)
        texts = {name: (ROOT / "crates" / folder / f"{WRITTEN}.json").read_text() for name, folder, _ in OUTPUTS}
    finally:
        for path in ROOT.glob(f"crates/*/{WRITTEN}.json"):
            path.unlink()
    (target / "dist").mkdir(exist_ok=True)
    for package, _, name in OUTPUTS:
        crates = resolved(package)
        bill = cleaned(texts[package], crates)
        if wrong := wrong_with(bill, crates):
            sys.exit("\n".join(f"{package}: {text}" for text in wrong))
        output = target / "dist" / name.format(versions[package])
        output.write_text(json.dumps(bill, indent=1) + "\n")
        print(f"{output}: {len(bill['components'])} crates")


if __name__ == "__main__":
    main()
