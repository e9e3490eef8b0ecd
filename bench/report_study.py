#!/usr/bin/env python3
"""docs/study.svg, and docs/study.md but for its notes, from bench/results/study.json."""

import json
import statistics
import textwrap
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402
from markdown import percent, table  # noqa: E402
from origin import sentence  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
#: Between these the page is written by hand.
BEGIN, END = "<!-- notes:begin -->", "<!-- notes:end -->"
PHASES = {"pretrain": "#c1272d", "finetune": "#2e7d9a", "sparse": "#0a7c59"}


def share(part: dict[str, Any]) -> float:
    return 100 * part["size"] / part["raw_size"]


def cell(part: dict[str, Any] | None) -> str:
    return "" if part is None else f"{share(part):.2f}"


def draw(study: dict[str, Any], path: Path) -> None:
    """The delta of every step, by step and by learning rate."""
    plt.rcParams.update({"svg.hashsalt": "lmc", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False})
    figure, (steps, rates) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained", sharey=True)
    for phase, color in PHASES.items():
        lines = study["phases"][phase]
        # One that stands alone is no delta.
        deltas = [(s["step"], 100 * s["new_size"] / s["raw_size"]) for s in lines]
        shown = [(step, y) for step, y in deltas if y < 50]
        steps.plot(*zip(*shown, strict=True), ".", ms=3, color=color, label=phase)
        rates.plot(
            [s["lr"] for s in lines], [100 * s["new_size"] / s["raw_size"] for s in lines], ".", ms=3, color=color
        )
    steps.set(xlabel="step", ylabel="delta of the bf16 weights, % of raw", yscale="log")
    steps.yaxis.set_major_formatter("{x:g}")
    steps.legend(frameon=False, loc="lower left")
    rates.set(xlabel="learning rate", xscale="log", ylim=(0.4, 50))
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def every_step(study: dict[str, Any]) -> str:
    """Deltas of one step, by ranges of steps."""
    rows = []
    for phase in PHASES:
        lines = study["phases"][phase]
        last = lines[-1]["step"]
        # No range of its own for a few steps at the end.
        ends = [2**i for i in range(1, 12) if 2**i < 0.75 * last] if phase == "pretrain" else []
        ends.append(last)
        first = lines[0]["step"]
        for end in ends:
            part = [s for s in lines if first <= s["step"] <= end and s["new_size"] < 0.5 * s["raw_size"]]
            alone = sum(first <= s["step"] <= end for s in lines) - len(part)
            first = max(first, end + 1)
            if not part:
                continue
            shares = [100 * s["new_size"] / s["raw_size"] for s in part]
            rates = [s["lr"] for s in part]
            where = f"{part[0]['step']}–{part[-1]['step']}" if len(part) > 1 else str(part[0]["step"])
            rows.append([
                phase, where, f"{min(rates):.1e}–{max(rates):.1e}" if min(rates) < max(rates) else f"{rates[0]:.1e}",
                f"{statistics.mean(shares):.2f}", f"{min(shares):.2f}", f"{max(shares):.2f}", str(alone),
            ])  # fmt: skip
    headings = ["", "steps", "learning rate", "mean Δ", "least", "most", "without a base"]
    return table(headings, rows, left=3)


def by_distance(study: dict[str, Any]) -> str:
    steps = sorted({d["distance"] for d in study["distances"]})
    rows = []
    for phase in PHASES:
        found = {d["distance"]: d["size"] for d in study["distances"] if d["phase"] == phase}
        rows.append([phase, *(cell(found.get(k)) for k in steps)])
    return table(["steps between", *map(str, steps)], rows)


def engines(study: dict[str, Any]) -> str:
    """A row for each codec, with the smaller of both ways; a column for each file or delta."""
    columns = sorted(
        (e["what"] for e in study["engines"]), key=lambda what: [*PHASES].index(what.split(",")[0])
    )
    rows: dict[str, dict[str, float]] = {}
    for measured in study["engines"]:
        for r in measured["results"]:
            if r["codec"] == "lmc" and r["given"] == "nothing" and "Δ" in measured["what"]:
                continue
            name = f"{r['codec']} {r['level']}".strip()
            row = rows.setdefault(f"**{name}**" if r["codec"] == "lmc" else name, {})
            row[measured["what"]] = min(100 * r["ratio"], row.get(measured["what"], 1e9))
    body = [[name, *(f"{row[c]:.2f}" if c in row else "" for c in columns)] for name, row in rows.items()]
    return table(["", *columns], body)


def published(study: dict[str, Any]) -> str:
    """Figures that others published, of other models, beside those of this run."""
    (weights,) = (e["results"] for e in study["engines"] if e["what"] == "pretrain")

    def size(codec: str, level: str) -> str:
        return percent(min(r["ratio"] for r in weights if (r["codec"], r["level"]) in ((codec, level), (codec, ""))))

    ours = size("lmc", "default")
    cores = f"{of_16_cores()} ([another run](benchmarks.md))"
    rows = [
        ["size, bf16 weights", "ZipNN, 2411.05239", '67 % ("often saving 33 %")', ours],
        ["", "DFloat11, 2504.11651", "about 70 %", ours],
        ["", "LMC, 2505.09810", "smaller than bzip2", f"{ours}, bzip2 {size('bzip2', '9')}"],
        ["GB/s of 16 cores, in and out", "LMC", "2.99, 4.04", cores],
        ["a set-up that later checkpoints reuse", "NeuralZip, 2610.09916", "1.81–21.33 × its baselines' speed", "none"],
    ]
    return table(["", "published by", "", "this run"], rows, left=4)


def of_16_cores() -> str:
    """GB/s in and out of 16 threads at level default, of bf16 weights on another machine."""
    (case,) = json.loads((ROOT / "bench" / "results" / "xeon-16.json").read_text())["cases"]
    (found,) = (r for r in case["results"] if r["codec"] == "lmc default, 16 threads")
    return f"{found['compress']['gb_per_s']:.1f}, {found['decompress']['gb_per_s']:.1f}"


# What docs/study.html was made with.
PAGE = """```text
python examples/pretrain.py --dir run --width 128 --batch 4 --context 64 --schedule 328 --steps 320 --every 20
python examples/pretrain.py --dir run --width 128 --batch 4 --context 64 --schedule 328 --steps 328 --every 1 --resume
lmc analyze run --distances 1,2,4,8,20,40,80,160 --html docs/study.html
tools/pictures.py docs/study.html docs/img study
```"""


def page(study: dict[str, Any], notes: str) -> str:
    model, training = study["model"], study["training"]
    rates = training["lr"]
    text = training["text"]
    device = "a processor" if training["device"] == "cpu" else training["device"]
    if training.get("compute") == "fp32":
        device += " (which multiplies fp32 copies of the bf16 weights)"
    found = training.get("text_roots", {}).get("pretrain", [{"root": "the standard library", "bytes": 1}])
    roots = ", ".join(r["root"] for r in found if r["bytes"])
    intro = f"""A GPT of {model["parameters"]:,} parameters ({model["layers"]} blocks of width {model["width"]},
sequences of {model["context"]} bytes, {training["batch"]} in a batch), trained by `bench/study.py` on
{device} with AdamW, bf16 weights and fp32 masters. *Pretrain*: from random weights, on
{text["pretrain"]:,} bytes of text ({roots}), with a warm-up to a learning rate of
{rates["pretrain"]:g} and a cosine decay to a tenth. *Finetune*: from there, on {text["finetune"]:,} bytes of
C++ (PyTorch's headers), at {rates["finetune"]:g}. *Sparse*: from there, at {rates["sparse"]:g}, a rate of
reinforcement learning. Stores keep the bf16 weights of every step, each as a delta of the previous step (every
{study["anchor_every"]}th has no base). {sentence(study)}"""
    intro = textwrap.fill(" ".join(intro.split()), 120)
    return f"""# A study of a run

<!-- Written by bench/report_study.py from bench/results/study.json, but for the notes. -->

{intro}

All numbers are per cent of raw, at level `default` unless stated otherwise. Δ: a delta of the previous step.

{BEGIN}

{notes.strip()}

{END}

## The page of another run

[The page](study.html) shows whole states of a smaller run: 16 of them 20 steps apart, then eight of successive steps.
On a phone: [light](img/study-phone-light.png), [dark](img/study-phone-dark.png). A whole state takes 69.8 % alone, 23.3
to 24.0 % one step on (first moments 80 to 81 % of theirs, second ones 2 to 3 %, both copies of the weights next to
nothing), and 64 to 69 % 20 steps on. The moments after a step explain 99.97 % of it; 8 to 19 % of it is gradient.

{PAGE}

![How training went](img/study-light.png)

![Deltas by distance, and the entropy of their differences](img/study-dark.png)

The same states by general-purpose codecs, by `bench/run engines` on steps 20, 160, 320 and 321, in per cent of raw: the
smaller of bytes as they are and byte planes, of a delta as exclusive or. zstd 19, bzip2, brotli and xz got a sample of
4 MB. Speeds are those of step 321 over that of a copy of the same bytes, by one thread.

|  | 320 alone | 160 steps on | one step on | compress | decompress | a step, compress | decompress |
| --- | --: | --: | --: | --: | --: | --: | --: |
| **lmc default** | 69.7 | 68.4 | 23.7 | 0.097 | 0.27 | 0.049 | 0.13 |
| zstd 1 | 81.1 | 79.8 | 63.3 | 0.061 | 0.041 | 0.053 | 0.040 |
| zstd 3 | 82.1 | 80.2 | 63.5 | 0.038 | 0.053 | 0.033 | 0.038 |
| zstd 19 | 79.2 | 77.7 | 61.5 | 0.0006 | 0.039 | 0.0005 | 0.043 |
| lz4 | 90.1 | 88.3 | 71.1 | 0.051 | 0.027 | 0.061 | 0.035 |
| gzip 6 | 81.6 | 79.8 | 63.2 | 0.0063 | 0.048 | 0.0052 | 0.029 |
| bzip2 9 | 81.3 | 80.0 | 63.8 | 0.0014 | 0.0030 | 0.0012 | 0.0028 |
| brotli 9 | 79.7 | 78.9 | 62.7 | 0.0012 | 0.030 | 0.0008 | 0.016 |
| xz 6 | 78.4 | 77.1 | 61.1 | 0.0005 | 0.016 | 0.0004 | 0.014 |
| snappy | 89.2 | 86.2 | 70.4 | 0.046 | 0.024 | 0.057 | 0.033 |

## Every version

![Deltas of the weights, step by step and by learning rate](study.svg)

{every_step(study)}{measured(study)}"""


def measured(study: dict[str, Any]) -> str:
    """The sections that need measurements besides training."""
    if "distances" not in study:
        return ""
    return f"""
## By distance

The weights of the last step of a phase, as deltas of the weights 1, 2, 4 … steps before.

{by_distance(study)}
## Beside general-purpose codecs

The smaller of two ways: as is, and in byte planes. For a delta, these codecs get the exclusive or of both files, and
zstd 3 also gets the base as a prefix. zstd 19, bzip2, brotli and xz got a sample of 16 MB. Δ k: a delta of the weights
k steps before.

{engines(study)}
## Beside published figures

Of other models, as their abstracts state them (numbers are those of arXiv).

{published(study)}"""


def main() -> None:
    study = json.loads((ROOT / "bench" / "results" / "study.json").read_text())
    draw(study, ROOT / "docs" / "study.svg")
    path = ROOT / "docs" / "study.md"
    notes = path.read_text().partition(BEGIN)[2].partition(END)[0]
    path.write_text(page(study, notes))


if __name__ == "__main__":
    main()
