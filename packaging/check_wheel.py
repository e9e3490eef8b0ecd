#!/usr/bin/env python3
"""Tests wheels as users get them: check_wheel.py WHEEL...

What is in each wheel and for which platforms it says to be. Those for this machine are installed into an empty
environment, without a compiler in its PATH: files, deltas, a store, the command, and the decoder in Python. Needs the
package index, for the decoder's dependencies.
"""

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
    store.save([path], step=step)
store.restore("python-back", 1)
assert (Path("python-back") / Path(sys.argv[1]).name).read_bytes() == old, "restores a snapshot"
print(lmc.__version__, lmc.__file__)
"""


def contents(wheel: Path, version: str, platforms: str) -> list[str]:
    """What is wrong with the files of a wheel."""
    wrong = []
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        info = f"lmc_codec-{version}.dist-info"
        licences = {f"{info}/licenses/{name}" for name in LICENCES}
        for name in sorted((FILES | licences | {f"{info}/METADATA", f"{info}/entry_points.txt"}) - names):
            wrong.append(f"has no {name}")
        for name in sorted(names):
            if not name.startswith(("lmc/", f"{info}/")) or "test" in name or name.endswith((".rs", ".pyc")):
                wrong.append(f"has {name}, which belongs to no installed package")
        tags = re.findall(r"^Tag: (\S+)$", archive.read(f"{info}/WHEEL").decode(), re.M)
        if {f"cp311-abi3-{p}" for p in platforms.split(".")} != set(tags):
            wrong.append(f"is named for {platforms}, and says {', '.join(tags)}")
        machine = platforms.split(".")[0].split("_", 3)[-1]
        if "manylinux" in platforms and "lmc/_lmc.abi3.so" in names:
            elf = archive.read("lmc/_lmc.abi3.so")[:20]
            if elf[:6] != b"\x7fELF\2\1" or struct.unpack_from("<H", elf, 18)[0] != MACHINES[machine]:
                wrong.append(f"its module is not for {machine}")
    return wrong


def is_for_this_machine(tags: str) -> bool:
    """Whether this is the system and the processor of the wheel's platforms."""
    system = {"linux": "manylinux", "darwin": "macosx"}.get(sys.platform, sys.platform)
    return system in tags and tags.endswith(f"_{platform.machine()}")


def installed(wheel: Path, version: str, work: Path) -> None:
    """Tests an installed wheel. `work` is an empty folder."""
    venv = work / "venv"
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    # Nothing of this machine's own: neither compilers nor Python packages.
    others = ("CARGO", "LMC", "PYTHON", "RUST")
    env = {k: v for k, v in os.environ.items() if not k.startswith(others)} | {"PATH": str(venv / "bin")}
    for program in ("cargo", "rustc", "cc", "gcc", "clang"):
        if found := shutil.which(program, path=env["PATH"]):
            sys.exit(f"{found} is in the PATH of the environment that was to be empty")

    def run(*command: object) -> str:
        done = subprocess.run([str(c) for c in command], cwd=work, env=env, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{wheel.name}: {' '.join(map(str, command))}\nexit status {done.returncode}\n{done.stderr}")
        return done.stdout

    def same(path: Path, expected: Path) -> None:
        if path.read_bytes() != expected.read_bytes():
            sys.exit(f"{wheel.name}: {path.name} is not {expected.name}")

    python, lmc = venv / "bin" / "python", venv / "bin" / "lmc"
    pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
    # Alone: it depends on nothing.
    run(*pip, "--no-index", wheel)
    said = run(python, "-I", "-c", MODULE, OLD, NEW)
    if str(venv) not in said:
        sys.exit(f"{wheel.name}: another package was tested: {said}")

    command = run(lmc, "--version").split()
    # Python spells 1.0.0-rc.1 as 1.0.0rc1, and -dev as .dev0.
    if command[0] != "lmc" or command[1].replace("-rc.", "rc").replace("-dev", ".dev0") != version:
        sys.exit(f"{wheel.name}: the command is {' '.join(command)}, and the wheel has version {version}")
    run(lmc, "compress", NEW, "-o", work / "new.lmc")
    run(lmc, "decompress", work / "new.lmc", "-o", work / "new")
    same(work / "new", NEW)
    run(lmc, "compress", NEW, "--base", OLD, "-o", work / "command-delta.lmc")
    run(lmc, "decompress", work / "command-delta.lmc", "--base", OLD, "-o", work / "delta")
    same(work / "delta", NEW)
    for step, path in ((300, OLD), (310, NEW)):
        run(lmc, "snapshot", "save", work / "store", path, "--step", step)
    for step, path in ((300, OLD), (310, NEW)):
        run(lmc, "snapshot", "restore", work / "store", "--at", step, "-o", work / str(step))
        same(work / str(step) / path.name, path)
    run(lmc, "snapshot", "verify", work / "store", "--deep")

    run(*pip, f"{wheel}[decode]")
    run(python, "-I", "-m", "lmc.decode", work / "new.lmc", "-o", work / "decoded")
    same(work / "decoded", NEW)
    run(python, "-I", "-m", "lmc.decode", work / "delta.lmc", "-b", OLD, "-o", work / "decoded-delta")
    same(work / "decoded-delta", NEW)


def main() -> None:
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    for wheel in (Path(argument).resolve() for argument in sys.argv[1:]):
        named = NAME.fullmatch(wheel.name)
        if not named:
            sys.exit(f"{wheel.name}: a wheel is named lmc_codec-VERSION-cp311-abi3-PLATFORM.whl")
        version, platforms = named.groups()
        if wrong := contents(wheel, version, platforms):
            sys.exit("\n".join(f"{wheel.name}: {text}" for text in wrong))
        if not is_for_this_machine(platforms):
            print(f"{wheel.name}: files and platform are right; not installed, because it is for another machine")
            continue
        with tempfile.TemporaryDirectory(prefix="lmc-wheel-") as work:
            installed(wheel, version, Path(work))
        print(f"{wheel.name}: installed and tested")


if __name__ == "__main__":
    main()
