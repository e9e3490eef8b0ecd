#!/usr/bin/env python3
"""Copies of a model in other precisions, as the libraries make them, given the model as their base.

    bench/run precisions [--rounds N] [--threads N]    of minilm five times, and of a Llama: 100 million parameters each

Each copy is made by torch's casts, by the recipe that the table names, or by the quantisers of the package gguf, from
the weights in bf16. Sizes are given in per cent of the copy. Speeds are ratios to those of a dense delta (the bf16
weights one step of training further on) in the same round, and medians over the rounds count: by element, which is the
time of the delta over that of the copy, as both have the same elements and read the same base; and in GB/s of the copy,
which has half or a quarter of the bytes.
"""

import argparse
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from gguf import GGMLQuantizationType, GGUFWriter, quants
from safetensors.torch import load_file, save_file

State = dict[str, torch.Tensor]
# The largest magnitude of torch.float8_e4m3fn.
E4M3 = 448.0
# Where the magnitudes of 4-bit floats (E2M1) end; ties go to the even code.
E2M1_EDGES = (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0)
GGUF_TYPES = ("F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "MXFP4")


def is_matrix(tensor: torch.Tensor) -> bool:
    return tensor.dim() == 2 and tensor.is_floating_point()


def e2m1(values: torch.Tensor) -> torch.Tensor:
    """Codes of 4-bit floats, two a byte."""
    magnitude, codes = values.abs(), torch.zeros_like(values, dtype=torch.int32)
    for i, edge in enumerate(E2M1_EDGES):
        codes += (magnitude >= edge if i % 2 else magnitude > edge).int()
    codes |= torch.signbit(values).int() << 3
    return (codes[:, 0::2] | codes[:, 1::2] << 4).to(torch.uint8).contiguous()


def groups_of(w: torch.Tensor, size: int) -> torch.Tensor:
    return w.float().view(w.shape[0], -1, size)


def fp8_block(name: str, w: torch.Tensor, size: int = 128) -> State:
    """DeepSeek's weight_quant: a scale of 128 by 128 weights, amax / 448."""
    rows, columns = w.shape
    down, across = -rows % size, -columns % size
    padded = torch.nn.functional.pad(w.float(), (0, across, 0, down))
    tiles = padded.view((rows + down) // size, size, (columns + across) // size, size)
    scales = (tiles.abs().amax((1, 3)) / E4M3).clamp(min=1e-12)
    codes = (tiles / scales[:, None, :, None]).view(rows + down, columns + across)[:rows, :columns]
    return {name: codes.to(torch.float8_e4m3fn).contiguous(), f"{name}_scale_inv": scales}


def fp8_row(name: str, w: torch.Tensor) -> State:
    """A scale of each row, amax / 448, as FBGEMM and vLLM have it."""
    scales = (w.float().abs().amax(1, keepdim=True) / E4M3).clamp(min=1e-12)
    return {name: (w.float() / scales).clamp(-E4M3, E4M3).to(torch.float8_e4m3fn), f"{name}_scale": scales}


def fp8_tensor(name: str, w: torch.Tensor) -> State:
    """AutoFP8: one scale, 448 / amax, multiplied in bf16, and its reciprocal stored."""
    scale = E4M3 / w.abs().max().float().clamp(min=1e-12)
    codes = (w * scale).clamp(-E4M3, E4M3).to(torch.float8_e4m3fn)
    return {name: codes, f"{name}_scale": scale.reciprocal().reshape(1)}


def int8_row(name: str, w: torch.Tensor) -> State:
    """A scale of each row, amax / 127."""
    scales = (w.float().abs().amax(1) / 127).clamp(min=1e-12)
    return {name: torch.round(w.float() / scales[:, None]).to(torch.int8), f"{name}_scale": scales}


def int8_bf16(name: str, w: torch.Tensor) -> State:
    """compressed-tensors (W8A8): a scale of each row in bf16, amax / 127.5."""
    scales = (w.abs().amax(1, keepdim=True) / 127.5).clamp(min=1e-12)
    return {name: torch.round(w / scales).clamp(-128, 127).to(torch.int8), f"{name}_scale": scales}


def nvfp4(name: str, w: torch.Tensor) -> State:
    """NVIDIA's model optimiser: 4-bit floats, a scale of 16 weights in e4m3, and one of all."""
    groups = groups_of(w, 16)
    common = (w.float().abs().max() / (6 * E4M3)).clamp(min=1e-12)
    scales = ((groups.abs().amax(-1) / 6) / common).to(torch.float8_e4m3fn)
    codes = e2m1((groups / (scales.float() * common)[..., None]).nan_to_num().reshape(w.shape))
    return {name: codes, f"{name}_scale": scales, f"{name}_scale_2": common.reshape(())}


def mxfp4(name: str, w: torch.Tensor) -> State:
    """The OCP's microscaling: 4-bit floats, an exponent of 32 weights."""
    groups = groups_of(w, 32)
    exponents = (torch.floor(torch.log2(groups.abs().amax(-1))) - 2).clamp(-127, 127)
    codes = e2m1((groups / torch.exp2(exponents)[..., None]).reshape(w.shape))
    scales = (exponents + 127).to(torch.uint8).view(torch.float8_e8m0fnu)
    return {name: codes, f"{name}_scale": scales}


QUANTISERS: dict[str, Callable[[str, torch.Tensor], State]] = {
    "FP8 128 × 128": fp8_block,
    "FP8 by row": fp8_row,
    "FP8 by tensor": fp8_tensor,
    "INT8 by row": int8_row,
    "INT8 by row, bf16 scales": int8_bf16,
    "NVFP4": nvfp4,
    "MXFP4": mxfp4,
}
CASTS = {"F32": torch.float32, "F16": torch.float16, "FP8 without scales": torch.float8_e4m3fn}


def interleaved(w: torch.Tensor, heads: int) -> torch.Tensor:
    """The rows as llama.cpp orders those of q and k."""
    rows, columns = w.shape
    return w.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def gguf(model: State, kind: str, path: Path, heads: int = 0) -> None:
    """A file of llama.cpp, matrices of one type; those of queries and keys interleaved if there are heads."""
    writer = GGUFWriter(path, "llama")
    for i, (name, w) in enumerate(model.items()):
        if not w.is_floating_point():
            continue
        if heads and ("q_proj" in name or "k_proj" in name):
            w = interleaved(w, heads * w.shape[0] // w.shape[1])
        values, name = w.float().numpy(), f"blk.{i // 9}.t{i % 9}.weight"
        if not is_matrix(w):
            writer.add_tensor(name, values)
        elif kind == "F16":
            writer.add_tensor(name, values.astype(np.float16))
        else:
            type = GGMLQuantizationType[kind]
            writer.add_tensor(name, quants.quantize(values, type), raw_dtype=type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def copies(model: State, folder: Path, heads: int = 0) -> Iterator[tuple[str, Path]]:
    """Files of the model in each precision, one at a time, with what they are."""
    for what, dtype in CASTS.items():

        def cast(w: torch.Tensor, dtype: torch.dtype = dtype) -> torch.Tensor:
            return w.to(dtype) if is_matrix(w) or w.is_floating_point() and dtype.itemsize > 1 else w

        made = {n: cast(w) for n, w in model.items()}
        save_file(made, folder / "copy.safetensors")
        yield what, folder / "copy.safetensors"
    for what, quantise in QUANTISERS.items():
        made = {}
        for name, w in model.items():
            made.update(quantise(name, w) if is_matrix(w) and w.shape[1] % 32 == 0 else {name: w})
        save_file(made, folder / "copy.safetensors")
        yield what, folder / "copy.safetensors"
    torch.save(model, folder / "copy.bin")
    yield "torch.save", folder / "copy.bin"
    for kind in GGUF_TYPES:
        gguf(model, kind, folder / "copy.gguf", heads)
        yield f"GGUF {kind}", folder / "copy.gguf"


def llama(layers: int, width: int, feed_forward: int, vocabulary: int, heads: int = 16) -> State:
    """Random weights with the names, shapes and sizes of a Llama's."""
    random = torch.Generator().manual_seed(1)

    def matrix(rows: int, columns: int) -> torch.Tensor:
        return (torch.randn(rows, columns, generator=random) / columns**0.5).bfloat16()

    model = {"model.embed_tokens.weight": matrix(vocabulary, width)}
    for i in range(layers):
        parts = {
            "self_attn.q_proj": (width, width),
            "self_attn.k_proj": (width // heads * 4, width),
            "self_attn.v_proj": (width // heads * 4, width),
            "self_attn.o_proj": (width, width),
            "mlp.gate_proj": (feed_forward, width),
            "mlp.up_proj": (feed_forward, width),
            "mlp.down_proj": (width, feed_forward),
        }
        for name, shape in parts.items():
            model[f"model.layers.{i}.{name}.weight"] = matrix(*shape)
        for name in ("input_layernorm", "post_attention_layernorm"):
            model[f"model.layers.{i}.{name}.weight"] = torch.rand(width, generator=random).bfloat16()
    return model


def stepped(model: State) -> State:
    """The weights after a step: bf16 of what moves by some 2^-9 of their size."""
    random = torch.Generator().manual_seed(2)
    return {
        n: (w.float() + 2**-9 * w.float().abs().mean() * torch.randn(w.shape, generator=random)).bfloat16()
        if is_matrix(w)
        else w
        for n, w in model.items()
    }


def both(lmc: str, threads: int, base: Path, file: Path, folder: Path) -> tuple[float, float, int]:
    """Seconds in and out, and the size."""
    from process import run

    packed, back = folder / "packed.lmc", folder / "back"
    given = ["-q", f"-T{threads}", "-f", "--base", str(base), "-o"]
    into = run([lmc, "compress", *given, str(packed), str(file)])
    out = run([lmc, "decompress", *given, str(back), str(packed)])
    assert back.read_bytes() == file.read_bytes()
    return into.seconds, out.seconds, packed.stat().st_size


def main() -> None:
    import inputs
    from markdown import show
    from process import run

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lmc", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    trained = load_file(inputs.minilm())
    minilm = {
        f"{i}.{n}": (w * (0.7 + 0.13 * i)).bfloat16() if w.is_floating_point() else w
        for i in range(5)
        for n, w in trained.items()
    }
    rows = []
    for label, model, heads in (("minilm × 5", minilm, 0), ("Llama of 100 M", llama(4, 1024, 4096, 32000), 16)):
        with tempfile.TemporaryDirectory(prefix="lmc-precisions-") as at:
            folder = Path(at)
            base, later = folder / "model.safetensors", folder / "later.safetensors"
            save_file(model, base)
            save_file(stepped(model), later)

            for what, copy in copies(model, folder, heads):
                run([args.lmc, "-q", "compress", "-f", "-o", str(folder / "alone.lmc"), str(copy)])
                raw, alone = copy.stat().st_size, (folder / "alone.lmc").stat().st_size
                rounds = [
                    [both(args.lmc, args.threads, base, file, folder) for file in (copy, later)]
                    for _ in range(args.rounds)
                ]
                speeds = [statistics.median(d[i] / c[i] for c, d in rounds) for i in (0, 1)]
                gb = [raw / 1e9 / statistics.median(c[i] for c, _ in rounds) for i in (0, 1)]
                size = rounds[0][0][2]
                rows.append({
                    "model": label,
                    "copy": what,
                    "MB": round(raw / 1e6),
                    "alone, %": f"{100 * alone / raw:.2f}",
                    "given bf16, %": f"{100 * size / raw:.3f}",
                    "in, × a dense delta by element": speeds[0],
                    "out, ×": speeds[1],
                    "in, GB/s": gb[0],
                    "out, GB/s": gb[1],
                })  # fmt: skip
                print(rows[-1], file=sys.stderr)
    show(rows, args.json)


if __name__ == "__main__":
    main()
