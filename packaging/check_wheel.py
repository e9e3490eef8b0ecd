#!/usr/bin/env python3
"""Tests wheels as users get them: check_wheel.py [--emulated PYTHON] WHEEL...

What is in each wheel and for which platforms it says to be. Those for this machine are installed into an empty
environment, without a compiler in its PATH, and tested: files, deltas, a store, the command, and the decoder in Python.
So are those for the machine of PYTHON, a Python that runs in an emulator; pip then installs for that machine. Needs the
package index, for the decoder's dependencies.
"""

import argparse
import os
import platform
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OLD, NEW = (ROOT / "testdata" / f"gpt-step{step}-state.safetensors" for step in (300, 310))
NAME = re.compile(r"lmc_codec-([^-]+)-cp311-abi3-([a-z0-9_.]+)\.whl")
#: Of an ELF file: the machine that it is for.
MACHINES = {"x86_64": 62, "aarch64": 183}
#: The package without its Python modules.
FILES = {"lmc/_lmc.abi3.so", "lmc/_lmc.pyi", "lmc/py.typed", "lmc/__init__.py", "lmc/__main__.py", "lmc/decode.py"}
LICENCES = {"LICENSE-APACHE", "LICENSE-MIT"}

MODULE = """
import sys
from pathlib import Path
import lmc

old, new = (Path(path).read_bytes() for path in sys.argv[1:3])
file = lmc.compress(new)
assert len(file) < 0.9 * len(new), "compresses"
assert lmc.decompress(file) == new, "restores"
delta = lmc.compress(new, base=old)
assert len(delta) < 0.9 * len(file), "a delta is smaller"
assert lmc.decompress(delta, base=old) == new, "restores a delta"
try:
    lmc.decompress(delta)
except lmc.BaseMismatchError:
    pass
else:
    sys.exit("a delta was restored without its base")
Path("delta.lmc").write_bytes(delta)
store = lmc.Store.create("python-store")
for step, path in enumerate(sys.argv[1:3], 1):
    store.save_files([path], step=step)
store.restore("python-back", 1)
assert (Path("python-back") / Path(sys.argv[1]).name).read_bytes() == old, "restores a snapshot"
print(lmc.__version__, lmc.__file__)
"""


def contents(wheel: Path, version: str, platforms: str) -> list[str]:
    """The faults of the files of a wheel."""
    wrong = []
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        info = f"lmc_codec-{version}.dist-info"
        licences = {f"{info}/licenses/{name}" for name in LICENCES}
        for name in sorted((FILES | licences | {f"{info}/METADATA", f"{info}/entry_points.txt"}) - names):
            wrong.append(f"has no {name}")
        # What packaging/add_manual.py puts there: all of it, or nothing.
        manual = {name for name in names if name.startswith(f"lmc_codec-{version}.data/data/share/")}
        pages = {name.rsplit("/", 1)[-1] for name in manual}
        for name in sorted(({"lmc.1", "lmc-compress.1", "lmc", "lmc.fish", "_lmc"} if manual else set()) - pages):
            wrong.append(f"has manual pages or completions, but no {name}")
        for name in sorted(names - manual):
            if not name.startswith(("lmc/", f"{info}/")) or "test" in name or name.endswith((".rs", ".pyc")):
                wrong.append(f"has {name}, which belongs to no installed package")
        tags = re.findall(r"^Tag: (\S+)$", archive.read(f"{info}/WHEEL").decode(), re.M)
        if {f"cp311-abi3-{p}" for p in platforms.split(".")} != set(tags):
            wrong.append(f"is named for {platforms}, and says {', '.join(tags)}")
        if "manylinux" in platforms and "lmc/_lmc.abi3.so" in names:
            elf = archive.read("lmc/_lmc.abi3.so")[:20]
            expected = {number for machine, number in MACHINES.items() if platforms.endswith(f"_{machine}")}
            if elf[:6] != b"\x7fELF\2\1" or {struct.unpack_from("<H", elf, 18)[0]} != expected:
                wrong.append("its module is not for that machine")
    return wrong


def machine_of(python: str) -> str:
    """The processor of a Python, as it calls it."""
    command = [python, "-c", "import platform; print(platform.machine())"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def is_for(tags: str, machine: str) -> bool:
    """Whether a wheel's platforms are this system on a processor."""
    system = {"linux": "manylinux", "darwin": "macosx"}.get(sys.platform, sys.platform)
    return system in tags and tags.endswith(f"_{machine}")


def installed(wheel: Path, version: str, tags: str, emulated: str | None, work: Path) -> None:
    """Tests an installed wheel, with a Python in an emulator if one is given. `work` is an empty folder."""
    # Nothing of this machine's own: neither compilers nor Python packages.
    others = ("CARGO", "LMC", "PYTHON", "RUST")
    env = {k: v for k, v in os.environ.items() if not k.startswith(others)} | {"PATH": str(work / "venv" / "bin")}
    for program in ("cargo", "rustc", "cc", "gcc", "clang"):
        if found := shutil.which(program, path=env["PATH"]):
            sys.exit(f"{found} is in the PATH of the environment that was to be empty")
    options = ["--quiet", "--disable-pip-version-check", "install"]
    python: list[object]
    pip: list[object]
    lmc: list[object]
    if emulated:
        site = work / "site"
        env["PYTHONPATH"] = str(site)
        python, lmc = [emulated], [emulated, "-m", "lmc"]
        platforms = [f"--platform={tag}" for tag in tags.split(".")]
        options += ["--target", str(site), "--upgrade", "--only-binary=:all:", "--python-version=3.11", *platforms]
        pip = [sys.executable, "-m", "pip", *options]
    else:
        venv = work / "venv"
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
        python, lmc = [venv / "bin" / "python"], [venv / "bin" / "lmc"]
        pip = [*python, "-m", "pip", *options]

    def run(*command: object) -> str:
        done = subprocess.run([str(c) for c in command], cwd=work, env=env, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{wheel.name}: {' '.join(map(str, command))}\nexit status {done.returncode}\n{done.stderr}")
        return done.stdout

    def same(path: Path, expected: Path) -> None:
        if path.read_bytes() != expected.read_bytes():
            sys.exit(f"{wheel.name}: {path.name} is not {expected.name}")

    # Alone: it depends on nothing.
    run(*pip, "--no-index", wheel)
    said = run(*python, "-s", "-c", MODULE, OLD, NEW)
    if str(work) not in said:
        sys.exit(f"{wheel.name}: another package was tested: {said}")

    with zipfile.ZipFile(wheel) as archive:
        has_manual = any("/share/man/" in name for name in archive.namelist())
    if has_manual and not emulated and not (work / "venv" / "share" / "man" / "man1" / "lmc.1").is_file():
        sys.exit(f"{wheel.name}: pip did not install its manual pages")

    command = run(*lmc, "--version").split()
    # Python spells 1.0.0-rc.1 as 1.0.0rc1, and -dev as .dev0.
    if command[0] != "lmc" or command[1].replace("-rc.", "rc").replace("-dev", ".dev0") != version:
        sys.exit(f"{wheel.name}: the command is {' '.join(command)}, and the wheel has version {version}")
    run(*lmc, "compress", NEW, "-o", work / "new.lmc")
    run(*lmc, "decompress", work / "new.lmc", "-o", work / "new")
    same(work / "new", NEW)
    run(*lmc, "compress", NEW, "--base", OLD, "-o", work / "command-delta.lmc")
    run(*lmc, "decompress", work / "command-delta.lmc", "--base", OLD, "-o", work / "delta")
    same(work / "delta", NEW)
    for step, path in ((300, OLD), (310, NEW)):
        run(*lmc, "snapshot", "save", work / "store", path, "--step", step)
    for step, path in ((300, OLD), (310, NEW)):
        run(*lmc, "snapshot", "restore", work / "store", "--at", step, "-o", work / str(step))
        same(work / str(step) / path.name, path)
    run(*lmc, "snapshot", "verify", work / "store", "--deep")

    run(*pip, f"{wheel}[decode]")
    run(*python, "-s", "-m", "lmc.decode", work / "new.lmc", "-o", work / "decoded")
    same(work / "decoded", NEW)
    run(*python, "-s", "-m", "lmc.decode", work / "delta.lmc", "-b", OLD, "-o", work / "decoded-delta")
    same(work / "decoded-delta", NEW)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--emulated", metavar="PYTHON", help="a Python for another machine, in an emulator")
    parser.add_argument("wheels", metavar="WHEEL", nargs="+", type=Path)
    args = parser.parse_args()
    # Each machine whose wheels can be tested, and the Python to do that, if it is not this one.
    pythons: dict[str, str | None] = {platform.machine(): None}
    if args.emulated:
        pythons.setdefault(machine_of(args.emulated), args.emulated)
    for wheel in (path.resolve() for path in args.wheels):
        named = NAME.fullmatch(wheel.name)
        if not named:
            sys.exit(f"{wheel.name}: a wheel is named lmc_codec-VERSION-cp311-abi3-PLATFORM.whl")
        version, tags = named.groups()
        if wrong := contents(wheel, version, tags):
            sys.exit("\n".join(f"{wheel.name}: {text}" for text in wrong))
        machine = next((name for name in pythons if is_for(tags, name)), None)
        if machine is None:
            print(f"{wheel.name}: files and platform are right; not installed, because it is for another machine")
            continue
        with tempfile.TemporaryDirectory(prefix="lmc-wheel-") as work:
            installed(wheel, version, tags, pythons[machine], Path(work))
        print(f"{wheel.name}: installed and tested{' in an emulator' if pythons[machine] else ''}")


if __name__ == "__main__":
    main()
