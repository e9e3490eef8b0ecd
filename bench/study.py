#!/usr/bin/env python3
"""How the checkpoints of a run compress: trains a GPT, keeps every step, and measures sizes and times.

    bench/study.py --lmc target/release/lmc --dir run --json run/study.json [--device cuda] [--width 768 …]
    bench/study.py … --train        only trains
    bench/study.py … --measure      only measures what was trained, again if it was measured before

Three phases, with the model and the optimizer of examples/pretrain.py: *pretrain*, on Python and other text found on
this machine, with a warm-up and a cosine decay; *finetune*, from its end, on other text (headers of C++ of the torch
package) at a sixtieth of its learning rate; and *sparse*, from the end of that at a thousandth of it, where most bf16
weights do not change in a step, as in reinforcement learning.

`--dir` gets a store for each phase, with the bf16 weights of every step, and the store `states`, with the whole state
(weights, fp32 masters and both moments of AdamW) of some steps: powers of two, the step before each, the last two of
each phase, and those 1, 2, 4 … steps before the last one of pretraining. All at level `default`.

A run that was killed is started again by the same command. It continues from a checkpoint, which is written every 32
steps and at the end of each phase. Steps after it that are in the stores already are trained again, with as many
threads, and have to give the same bytes. The text is kept in `--dir`, too, because packages come and go.

`--json` gets the stored bytes of every step; the deltas of the last step's weights against the weights k steps before,
for k = 1, 2, 4 …; and for the last weights general-purpose codecs (`lmc-bench`), with the exclusive or for deltas.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import sys
from pathlib import Path

import origin
import torch
from study_measure import Measure, measure
from study_run import ANCHOR, Run, atomic


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--lmc", required=True, help="the program; lmc-bench lies beside it")
    parser.add_argument("--dir", type=Path, required=True, help="what the run keeps")
    parser.add_argument("--json", type=Path, required=True, help="the results")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--train", action="store_true", help="do not measure")
    only.add_argument("--measure", action="store_true", help="do not train")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("--batch", type=int, default=8)
    # One more than a power of two, for deltas of 1 to 512 steps.
    parser.add_argument("--steps", type=int, default=513, help="of pretraining; the others have a sixteenth of them")
    parser.add_argument("--schedule", type=int, help="steps over which the learning rate falls; by default --steps - 1")
    parser.add_argument("--warmup", type=int, default=32, help="steps in which it rises first")
    parser.add_argument("--lr", type=float, default=6e-4)
    parser.add_argument("--text", type=int, default=64_000_000, help="bytes of text")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, help="of a new run; by default as many as there are cores")
    parser.add_argument("--checkpoint-every", type=int, default=32, metavar="STEPS", help="to continue from")
    parser.add_argument("--states-disk", type=float, default=15e9, help="bytes that states may take in the store")
    parser.add_argument("--compute", choices=["bf16", "fp32"], help="by default what is fast here")
    args = parser.parse_args()
    if args.schedule is None:
        args.schedule = max(1, args.steps - 1)
    if args.schedule < args.steps - 1:
        parser.error(f"--schedule {args.schedule}: the learning rate would rise again in {args.steps} steps")
    if not args.compute:
        # Without instructions for bf16, PyTorch multiplies such matrices a hundred times slower than those of fp32.
        slow = args.device == "cpu" and not torch.ops.mkldnn._is_mkldnn_bf16_supported()
        args.compute = "fp32" if slow else "bf16"
    return args


def main() -> None:
    args = arguments()
    torch.use_deterministic_algorithms(True, warn_only=args.device != "cpu")
    args.dir.mkdir(parents=True, exist_ok=True)
    run = Run(args)
    with (args.dir / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            sys.exit(f"another process works in {args.dir}")
        if not args.measure:
            run.train()
        if not args.train:
            write(run)


def write(run: Run) -> None:
    """Measures what was trained."""
    args, saved = run.args, run.saved()
    if saved is None or saved["step"] < run.last:
        sys.exit(f"{args.dir} has no run that is complete: it is trained without --measure")
    parameters = sum(t.numel() for name, t in saved["tensors"].items() if name.startswith("model."))
    threads = saved["threads"]
    del saved
    texts = {name: text.description() for name, text in run.texts.items()}
    measure_with = Measure(args.lmc, args.dir)
    results = {
        "model": {"parameters": parameters, "width": args.width, "layers": args.layers, "context": args.context},
        "training": {
            "batch": args.batch,
            "lr": run.rates,
            "text": {phase.name: texts.get(phase.name, texts["finetune"])["bytes"] for phase in run.phases},
            "text_roots": {name: text["roots"] for name, text in texts.items()},
            "threads": threads,
            "device": device_name(args.device),
            "compute": args.compute,
        },
        "anchor_every": ANCHOR,
        "phases": {phase.name: phase.lines() for phase in run.phases},
        "origin": origin.origin(origin.machine(args.lmc)) | {"torch": torch.__version__},
    }
    print("measuring", flush=True)
    results |= measure(run, measure_with)
    with atomic(args.json) as file:
        file.write((json.dumps(results, indent=1) + "\n").encode())
    print(f"wrote {args.json}")


def device_name(device: str) -> str:
    return torch.cuda.get_device_name() if device.startswith("cuda") else "cpu"


if __name__ == "__main__":
    main()
