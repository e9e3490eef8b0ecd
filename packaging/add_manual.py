#!/usr/bin/env python3
"""Puts manual pages and completions into wheels: add_manual.py FOLDER WHEEL...

FOLDER has `man` and `completions`, as an archive of packaging/binary.sh does. pip installs them into `share` of the
environment, where `man` and the shells look if its `bin` is in the PATH. The wheel's list of files, RECORD, gets them.
"""

import base64
import csv
import hashlib
import io
import sys
import zipfile
from pathlib import Path

#: Where each shell looks below `share`.
PLACES = {
    "lmc.bash": "bash-completion/completions/lmc",
    "lmc.fish": "fish/vendor_completions.d/lmc.fish",
    "lmc.zsh": "zsh/site-functions/_lmc",
}


def additions(folder: Path, data: str) -> dict[str, bytes]:
    """The files by their names in a wheel."""
    pages = {f"{data}/share/man/man1/{page.name}": page.read_bytes() for page in sorted(folder.glob("man/*.1"))}
    shells = {f"{data}/share/{to}": (folder / "completions" / name).read_bytes() for name, to in PLACES.items()}
    if not pages:
        sys.exit(f"{folder} has no man/*.1")
    return pages | shells


def row(name: str, content: bytes) -> list[str]:
    """A line of RECORD."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return [name, f"sha256={digest}", str(len(content))]


def add(folder: Path, wheel: Path) -> int:
    """Rewrites a wheel. Files of an earlier call are replaced."""
    project, version = wheel.name.split("-")[:2]
    data, record = f"{project}-{version}.data/data", f"{project}-{version}.dist-info/RECORD"
    new = additions(folder, data)
    part = wheel.with_suffix(".part")
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as out:
        kept = [i for i in old.infolist() if i.filename != record and not i.filename.startswith(f"{data}/")]
        for info in kept:
            out.writestr(info, old.read(info), compress_type=info.compress_type)
        for name, content in new.items():
            # The time of all wheels that maturin makes reproducibly: the first that a zip archive can have.
            info = zipfile.ZipInfo(name)
            info.external_attr = 0o100644 << 16
            out.writestr(info, content, zipfile.ZIP_DEFLATED)
        names = {info.filename for info in kept}
        rows = [r for r in csv.reader(io.StringIO(old.read(record).decode())) if r[0] in names]
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(
            [*rows, *(row(name, content) for name, content in new.items()), [record, "", ""]]
        )
        out.writestr(record, text.getvalue(), zipfile.ZIP_DEFLATED)
    part.replace(wheel)
    return len(new)


def main() -> None:
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    for wheel in map(Path, sys.argv[2:]):
        print(f"{wheel.name}: {add(Path(sys.argv[1]), wheel)} files")


if __name__ == "__main__":
    main()
