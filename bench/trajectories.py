#!/usr/bin/env python3
"""Studies public runs whose checkpoints are on a hub: `lmc analyze` of each checkpoint and the previous one.

    bench/trajectories.py pin pythia-70m --pins pins.json
    bench/trajectories.py run pythia-70m --pins pins.json --lmc target/release/lmc --dir work --json pythia.json

`pin` asks the hub for the commit of each step's branch, and for the size and the SHA-256 of each file in it, once.
`run` downloads the pinned files, one checkpoint at a time, refuses files with other bytes, and studies each checkpoint
with the previous one, which it then deletes: at most two checkpoints of a run are on the disk. Studied pairs are not
studied again. HF_ENDPOINT sets the hub, by default https://huggingface.co. Only Python and `lmc` are needed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

HUB = os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
POWERS = [0, *(2**i for i in range(10))]

#: Repositories; the branches of their steps, with the step in parentheses; the files that count; and the steps.
RUNS: dict[str, dict[str, Any]] = {
    # Weights and ZeRO's states of the optimizer, as GPT-NeoX saved them.
    **{
        f"pythia-{size}": {
            "repo": f"EleutherAI/neox-ckpt-pythia-{size}-v1",
            "branch": r"step(\d+)",
            "files": r".*(layer_.*|mp_rank_.*|_optim_states)\.pt",
            "steps": [*POWERS, 1000, 2000, 4000, 8000, 16000, 32000, 64000, 128000, 143000],
        }
        for size in ("70m", "160m", "410m", "1.4b")
    },
    # Weights of 360 checkpoints of one run, by their numbers.
    "amber": {
        "repo": "LLM360/Amber",
        "branch": r"ckpt_(\d+)",
        "files": r".*\.(safetensors|bin)",
        "steps": [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 357, 358],
    },
    "olmo-1b": {
        "repo": "allenai/OLMo-1B",
        "branch": r"step(\d+)-tokens.*",
        "files": r".*\.(safetensors|bin)",
        "steps": [1000, 2000, 4000, 8000, 16000, 32000, 64000, 128000, 256000, 512000, 738000],
    },
}
CHUNK = 1 << 20
TRIES = 5
#: What a hub says that is too busy, besides its own errors: "Request Timeout" and "Too Many Requests".
AGAIN = (408, 429)


def ask(url: str) -> Any:
    """A JSON document of the hub, and its further pages."""
    found: Any = None
    next_url: str | None = url
    while next_url:
        with urllib.request.urlopen(next_url, timeout=60) as answer:
            part = json.load(answer)
            link = answer.headers.get("Link", "")
        found = part if found is None else found + part
        more = re.search(r'<([^>]+)>;\s*rel="next"', link)
        next_url = urllib.parse.urljoin(next_url, more[1]) if more else None
    return found


def quoted(text: str) -> str:
    return urllib.parse.quote(text, safe="/")


def pin(run: dict[str, Any], wanted: list[int] | None) -> list[dict[str, Any]]:
    """The commit of each step, and its files."""
    repo, branch, names = run["repo"], re.compile(run["branch"]), re.compile(run["files"])
    steps = wanted or run["steps"]
    refs = ask(f"{HUB}/api/models/{quoted(repo)}/refs")["branches"]
    matches = [(branch.fullmatch(ref["name"]), ref["targetCommit"]) for ref in refs]
    by_step = {int(m[1]): commit for m, commit in matches if m}
    missing = [step for step in steps if step not in by_step]
    if missing:
        near = sorted(by_step)
        sys.exit(f"{repo}: no branch for step {missing[0]}: there are {len(near)}, {near[:3]} … {near[-3:]}")
    found = []
    for step in sorted(steps):
        commit = by_step[step]
        tree = ask(f"{HUB}/api/models/{quoted(repo)}/tree/{commit}?recursive=true")
        files = [e for e in tree if e["type"] == "file" and names.fullmatch(e["path"])]
        if not files:
            sys.exit(f"{repo}, step {step}: no file is called {run['files']}")
        without = [e["path"] for e in files if "lfs" not in e]
        if without:
            sys.exit(f"{repo}, step {step}: the hub knows no SHA-256 of {without[0]}: it is no large file")
        pinned = [{"path": e["path"], "size": e["lfs"]["size"], "sha256": e["lfs"]["oid"]} for e in files]
        found.append({"step": step, "commit": commit, "files": sorted(pinned, key=lambda f: f["path"])})
        print(f"{repo}, step {step}: {len(pinned)} files, {sum(f['size'] for f in pinned) / 1e9:.2f} GB", flush=True)
    return found


def inside(folder: Path, name: str) -> Path:
    """The path for a file of the hub, whose name is untrusted."""
    path = folder / name
    if not name or Path(name).is_absolute() or ".." in Path(name).parts:
        sys.exit(f"{name!r} is not inside of its checkpoint")
    return path


def is_pinned(path: Path, file: dict[str, Any]) -> bool:
    """Whether a file on the disk has the size and the SHA-256 that were pinned."""
    if path.stat().st_size != file["size"]:
        return False
    with path.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest() == file["sha256"]


def download(repo: str, commit: str, file: dict[str, Any], target: Path) -> None:
    """Downloads a file, unless it exists with the pinned bytes; a file with other bytes never gets the name."""
    if target.exists():
        if is_pinned(target, file):
            return
        print(f"{target}: has other bytes than were pinned: downloaded again", flush=True)
        target.unlink()
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(target.name + ".part")
    url = f"{HUB}/{quoted(repo)}/resolve/{commit}/{quoted(file['path'])}"
    for attempt in range(1, TRIES + 1):
        digest, size = hashlib.sha256(), 0
        try:
            with urllib.request.urlopen(url, timeout=60) as answer, part.open("wb") as out:
                while size <= file["size"] and (piece := answer.read(CHUNK)):
                    out.write(piece)
                    digest.update(piece)
                    size += len(piece)
        except (urllib.error.URLError, OSError) as e:
            if isinstance(e, urllib.error.HTTPError) and e.code < 500 and e.code not in AGAIN:
                sys.exit(f"{url}: {e}")
            if attempt == TRIES:
                sys.exit(f"{url}: {e}, {TRIES} times")
            time.sleep(2**attempt)
            continue
        if (size, digest.hexdigest()) == (file["size"], file["sha256"]):
            part.rename(target)
            return
        if size >= file["size"] or attempt == TRIES:
            part.unlink()
            sys.exit(f"{url}: has other bytes than were pinned: {size}, SHA-256 {digest.hexdigest()}")


def fetch(repo: str, checkpoint: dict[str, Any], folder: Path) -> Path:
    """A directory with a checkpoint."""
    target = folder / f"step{checkpoint['step']:09}"
    for file in checkpoint["files"]:
        download(repo, checkpoint["commit"], file, inside(target, file["path"]))
    return target


def study(lmc: str, paths: list[Path], page: Path) -> dict[str, Any]:
    """The findings of `lmc analyze`, without single tensors."""
    command = [lmc, "analyze", "--json", "--independent", "--html", page, "-f", *paths]
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit status {done.returncode}")
    found = json.loads(done.stdout)
    del found["tensors"]
    return found


def row(step: int, found: dict[str, Any]) -> dict[str, Any]:
    """The last checkpoint in numbers."""
    pair = found["pairs"][-1] if found["pairs"] else None
    change = pair["all"] if pair else {}
    return {
        "step": step,
        "since": pair["steps"] if pair else None,
        "raw_size": found["checkpoints"][-1]["all"]["raw_size"],
        "lmc_size": found["checkpoints"][-1]["all"]["lmc_size"],
        "delta_size": change.get("delta_size"),
        "changed": change["changed"] / max(change["compared"], 1) if pair else None,
        "kinds": found["checkpoints"][-1]["kinds"],
        "groups": pair["groups"] if pair else [],
    }


def run(name: str, pins: dict[str, Any], lmc: str, folder: Path) -> list[dict[str, Any]]:
    """Studies the pinned checkpoints of a run in their order."""
    pinned = pins[name]
    folder.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    before: dict[str, Any] | None = None
    for checkpoint in pinned["checkpoints"]:
        kept = folder / f"step{checkpoint['step']:09}.json"
        made = {"commits": [c["commit"] for c in (before, checkpoint) if c]}
        done = json.loads(kept.read_text()) if kept.exists() else {}
        if done.get("made") != made:
            paths = [fetch(pinned["repo"], c, folder) for c in (before, checkpoint) if c]
            found = row(checkpoint["step"], study(lmc, paths, kept.with_suffix(".html")))
            done = {"made": made, "found": found}
            part = kept.with_suffix(".part")
            part.write_text(json.dumps(done, indent=1) + "\n")
            part.rename(kept)
        if before:
            shutil.rmtree(folder / f"step{before['step']:09}", ignore_errors=True)
        rows.append(done["found"])
        before = checkpoint
        share = 100 * rows[-1]["lmc_size"] / rows[-1]["raw_size"]
        delta = rows[-1]["delta_size"]
        given = f", {100 * delta / rows[-1]['raw_size']:.2f} % as a delta" if delta is not None else ""
        print(f"{name}, step {checkpoint['step']}: {share:.2f} % of {rows[-1]['raw_size']} bytes{given}", flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", choices=("pin", "run"))
    parser.add_argument("name", choices=sorted(RUNS))
    parser.add_argument("--pins", type=Path, required=True, help="what is pinned: written by pin, read by run")
    parser.add_argument("--steps", type=lambda s: [int(n) for n in s.split(",")], help="of pin, in place of its own")
    parser.add_argument("--lmc", help="the program")
    parser.add_argument("--dir", type=Path, help="for checkpoints, and the results of each")
    parser.add_argument("--json", type=Path, help="the results")
    args = parser.parse_args()
    pins = json.loads(args.pins.read_text()) if args.pins.exists() else {}
    if args.what == "pin":
        if args.name in pins:
            sys.exit(f"{args.pins} has {args.name} already: what is pinned stays")
        checkpoints = pin(RUNS[args.name], args.steps)
        pins[args.name] = {"repo": RUNS[args.name]["repo"], "checkpoints": checkpoints}
        args.pins.write_text(json.dumps(pins, indent=1) + "\n")
        return
    if None in (args.lmc, args.dir, args.json):
        parser.error("run needs --lmc, --dir and --json")
    if args.name not in pins:
        sys.exit(f"{args.pins} has no {args.name}: pin it first")
    rows = run(args.name, pins, args.lmc, args.dir / args.name)
    program = subprocess.run([args.lmc, "--version"], check=True, capture_output=True, text=True).stdout.split("\n")[0]
    results = {"run": args.name, "repo": pins[args.name]["repo"], "program": program, "checkpoints": rows}
    args.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
