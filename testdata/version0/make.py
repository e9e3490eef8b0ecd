"""Makes the files of version 0, with lmc 0.1: `python testdata/version0/make.py LMC OUTPUT`.

LMC is the command of lmc 0.1; the `lmc` that Python imports is 0.1's, too (README.md says how to build both).
"""

import argparse
import json
import struct
import subprocess
from pathlib import Path
from types import SimpleNamespace

import lmc
import lmc.dcp
import numpy as np
import torch
import torch.distributed.checkpoint as dcp
from lmc.hf import Callback

ELEMENTS = 1500


def weights(step: int) -> bytes:
    """Weights in bf16, a little further with each step."""
    start = np.random.default_rng(1).standard_normal(ELEMENTS) * 0.02
    moved = start + np.random.default_rng(2).standard_normal(ELEMENTS) * 2e-5 * step
    return (moved.astype("<f4").view("<u4") >> 16).astype("<u2").tobytes()


def safetensors(step: int) -> bytes:
    """A file with one tensor."""
    header = {"w": {"dtype": "BF16", "shape": [ELEMENTS], "data_offsets": [0, 2 * ELEMENTS]}}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + weights(step)


def main() -> None:
    """Make all of them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("lmc", help="the command of lmc 0.1")
    parser.add_argument("output", type=Path, help="an empty or new folder")
    options = parser.parse_args()
    if lmc.FORMAT_VERSION != 0:
        parser.error(f"the lmc that Python imports writes version {lmc.FORMAT_VERSION}, not 0: set PYTHONPATH")
    out: Path = options.output
    out.mkdir(parents=True, exist_ok=True)

    def run(*arguments: str) -> None:
        subprocess.run([options.lmc, *arguments], cwd=out, check=True, stdout=subprocess.DEVNULL)

    for step in (1, 2):
        (out / f"step{step}.safetensors").write_bytes(safetensors(step))
    run("compress", "step1.safetensors")
    run("compress", "step2.safetensors", "--base", "step1.safetensors")
    for step in (1, 2):
        run("snapshot", "save", "store", f"step{step}.safetensors", "--step", str(step))
    run("snapshot", "export", "store", "store.tar")

    for step in (1, 2):
        tensor = torch.frombuffer(bytearray(weights(step)), dtype=torch.bfloat16)
        dcp.save({"w": tensor}, storage_writer=lmc.dcp.Writer(out / "dcp" / str(step)), no_dist=True)

    # As a Trainer calls it, with checkpoints as small as they can be. It moves all but the last.
    for step in (1, 2, 3):
        checkpoint = out / "hf" / f"checkpoint-{step}"
        checkpoint.mkdir(parents=True)
        (checkpoint / "model.safetensors").write_bytes(safetensors(step))
    callback = Callback()
    state = SimpleNamespace(is_world_process_zero=True, best_model_checkpoint=None)
    callback.on_save(SimpleNamespace(output_dir=str(out / "hf")), state, None)
    callback.wait()
    left = sorted(p.name for p in (out / "hf").glob("checkpoint-*"))
    if left != ["checkpoint-3"]:
        raise SystemExit(f"the callback left {left}")


if __name__ == "__main__":
    main()
