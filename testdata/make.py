#!/usr/bin/env python3
"""Makes the files of this folder. Nothing but the standard library is needed.

    make.py tiny [--check]                            small/: one file per corner of the safetensors format
    make.py cut STATE_300 STATE_301 STATE_310 WEIGHTS MINILM
                                                      the cuts of real models (README.md says where those came from)

`tiny --check` writes nothing and fails if a committed file differs from what this script makes.
"""

import argparse
import json
import struct
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent

# name of the dtype → bits of an element
BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "U16": 16, "I16": 16, "U32": 32, "I32": 32, "U64": 64, "I64": 64,
    "F16": 16, "BF16": 16, "F32": 32, "F64": 64, "C64": 64,
    "F8_E4M3": 8, "F8_E5M2": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "F8_E8M0": 8,
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
}  # fmt: skip


def safetensors(tensors, metadata=None, pad=8):
    """A safetensors file of (name, dtype, shape, bytes), laid out in the order given."""
    header, at = {}, 0
    if metadata is not None:
        header["__metadata__"] = metadata
    for name, dtype, shape, data in tensors:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % pad)
    return struct.pack("<Q", len(text)) + text + b"".join(t[3] for t in tensors)


class Source:
    """Tensors of an existing safetensors file, read one by one."""

    def __init__(self, path):
        self.file = open(path, "rb")
        (length,) = struct.unpack("<Q", self.file.read(8))
        self.header = json.loads(self.file.read(length))
        self.base = 8 + length

    def rows(self, name, rows=None):
        """The tensor, or the rows [a, b) of it, as an entry for `safetensors`."""
        entry = self.header[name]
        begin, end = entry["data_offsets"]
        shape = list(entry["shape"])
        if rows is not None:
            row = (end - begin) // shape[0]
            begin, end = begin + rows[0] * row, begin + rows[1] * row
            shape[0] = rows[1] - rows[0]
        self.file.seek(self.base + begin)
        return name, entry["dtype"], shape, self.file.read(end - begin)


def cut_state(source, step):
    """One block, the positions and 256 rows of the embedding, of all four kinds: weights, master, both moments."""
    rows = {"embed.weight": (1024, 1280)}
    keep = ("blocks.1.", "embed.", "norm.", "pos.")
    tensors = []
    for name in source.header:
        kind, _, rest = name.partition(".")
        if kind in ("model", "master", "exp_avg", "exp_avg_sq") and rest.startswith(keep):
            tensors.append(source.rows(name, rows.get(rest)))
    return safetensors(tensors, {"step": step})


def cut_weights(source, step):
    """The bf16 weights alone, as a release would hold them; 2,048 rows of the embedding."""
    tensors = []
    for name in source.header:
        if name.startswith("model."):
            tensors.append(source.rows(name, (0, 2048) if name == "model.embed.weight" else None))
    return safetensors(tensors, {"step": step})


def cut_minilm(source):
    """Rows of the embeddings and parts of layer 0.

    Fine-tuning never touched some rows of the embeddings: they end in 13 zero bits. The cut keeps their share as it
    is in the whole model, 4.4 % of the words and 75 % of the positions.
    """
    rows = {
        "embeddings.word_embeddings.weight": (983, 1623),
        "embeddings.position_embeddings.weight": (80, 272),
        "encoder.layer.0.intermediate.dense.weight": (0, 256),
        "encoder.layer.0.intermediate.dense.bias": (0, 256),
    }
    keep = (
        "embeddings.",
        "encoder.layer.0.attention.self.query.",
        "encoder.layer.0.attention.self.key.",
        "encoder.layer.0.attention.output.LayerNorm.",
        "encoder.layer.0.intermediate.",
    )
    return safetensors([source.rows(n, rows.get(n)) for n in source.header if n.startswith(keep)], {"format": "pt"})


def noise(seed, count):
    """`count` bytes of a linear congruential generator: the same everywhere, no library needed."""
    out = bytearray()
    x = seed & 0xFFFFFFFF
    for _ in range(count):
        x = (x * 1664525 + 1013904223) & 0xFFFFFFFF
        out.append(x >> 24)
    return bytes(out)


def gaussian_bf16(seed, count):
    """Something like weights: sums of twelve uniform numbers, scaled to a deviation of 0.02, cut to bf16."""
    uniform = noise(seed, 12 * count)
    out = bytearray()
    for i in range(count):
        value = (sum(uniform[12 * i : 12 * i + 12]) / 256 - 6) * 0.02
        out += struct.pack("<f", value)[2:]
    return bytes(out)


def tiny():
    """Every tiny file: name → bytes."""
    files = {}
    every = []
    for i, (dtype, bits) in enumerate(BITS.items()):
        every.append((f"t.{dtype}", dtype, [8, 24], noise(i + 1, 8 * 24 * bits // 8)))
    files["every-dtype"] = safetensors(every)

    # No tensors at all; with and without metadata.
    files["empty"] = safetensors([])
    files["empty-metadata"] = safetensors([], {"format": "pt", "note": ""})

    # 0-d tensors hold one element; a dimension of 0 makes an empty one, anywhere in the file.
    files["shapes"] = safetensors([
        ("none.first", "F32", [0], b""),
        ("scalar.f32", "F32", [], struct.pack("<f", -0.0)),
        ("none.inside", "BF16", [3, 0, 5], b""),
        ("scalar.i64", "I64", [], struct.pack("<q", -(2**63))),
        ("ones", "U8", [1] * 16, b"\x07"),
        ("none.last", "F64", [0, 0], b""),
    ])  # fmt: skip

    # Names are any JSON string.
    names = ["", " ", "a/b\\c", '"quoted"', "new\nline", "tab\t", "ü", "重み", "🦀", "x" * 1000, "\u0000nul", "-o", "*"]
    files["odd-names"] = safetensors([(n, "U8", [3], bytes([i, i, i])) for i, n in enumerate(names)])

    # The writer may order tensors as it likes; this one lists them backwards in the header.
    forward = [(f"layer.{i}.weight", "BF16", [16, 16], gaussian_bf16(i, 256)) for i in range(4)]
    length, text, data = split(safetensors(forward))
    backwards = dict(reversed(json.loads(text).items()))
    text = json.dumps(backwards, separators=(",", ":")).encode()
    text += b" " * (length - len(text))
    files["backwards"] = struct.pack("<Q", length) + text + data

    # Tensors that start at odd offsets: nothing in the format aligns them, and this header is not padded.
    odd = [("odd", "U8", [1], b"\x01"), ("half", "BF16", [200], gaussian_bf16(9, 200)), ("byte", "I8", [1], b"\xff")]
    files["unaligned"] = safetensors([*odd, ("wide", "F64", [3], struct.pack("<3d", 0.1, -0.2, 1e300))], pad=1)

    # Values that arithmetic would not keep: NaNs with payloads, denormals, both zeros, infinities.
    f32 = [0x7FC00000, 0x7F800001, 0xFFFFFFFF, 0x00000001, 0x807FFFFF, 0x80000000, 0, 0x7F800000, 0xFF800000]
    f16 = [0x7E00, 0x7C01, 0xFFFF, 0x0001, 0x83FF, 0x8000, 0, 0x7C00, 0xFC00]
    bf16 = [v >> 16 for v in f32]
    files["special-values"] = safetensors([
        ("f32", "F32", [9], struct.pack("<9I", *f32)),
        ("f16", "F16", [9], struct.pack("<9H", *f16)),
        ("bf16", "BF16", [9], struct.pack("<9H", *bf16)),
        ("all.bf16.patterns.of.one.exponent", "BF16", [2, 128], struct.pack("<256H", *range(0x3F00, 0x4000))),
    ])  # fmt: skip

    # One run, less than one, and just more than one: the unit of the format.
    sizes = [1, 2, 63, 64, 65, 127, 128, 129, 255, 256, 257]
    files["run-sizes"] = safetensors([(f"n{n}", "BF16", [n], gaussian_bf16(n, n)) for n in sizes])

    # Files that readers of safetensors refuse: to a compressor they are bytes like any other.
    good = safetensors([("w", "F32", [4], bytes(16))])
    files["refused-hole"] = good.replace(b'"data_offsets":[0,16]', b'"data_offsets":[4,20]') + bytes(4)
    files["refused-short"] = good[:-1]
    files["refused-long"] = good + b"\0"
    files["refused-shape"] = good.replace(b"[4]", b"[5]")
    files["refused-length"] = struct.pack("<Q", 2**63) + good[8:]
    files["refused-json"] = struct.pack("<Q", 8) + b'{"w":{{}' + bytes(16)
    files["refused-duplicate"] = duplicate_name()
    return {f"small/{name}.safetensors": data for name, data in files.items()} | {"small/zero-bytes.bin": b""}


def split(file):
    """Length of the header, header and data of a safetensors file."""
    (length,) = struct.unpack("<Q", file[:8])
    return length, file[8 : 8 + length], file[8 + length :]


def duplicate_name():
    """Two tensors of one name, which JSON allows and safetensors does not."""
    one = b'"w":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}'
    two = b'"w":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}'
    text = b"{" + one + b"," + two + b"}"
    return struct.pack("<Q", len(text)) + text + bytes(range(8))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("tiny").add_argument("--check", action="store_true")
    cut = commands.add_parser("cut")
    for name in ("state_300", "state_301", "state_310", "weights", "minilm"):
        cut.add_argument(name, type=Path)
    args = parser.parse_args()

    if args.command == "tiny":
        files = tiny()
    else:
        files = {
            "gpt-step300-state.safetensors": cut_state(Source(args.state_300), "300"),
            "gpt-step301-state.safetensors": cut_state(Source(args.state_301), "301"),
            "gpt-step310-state.safetensors": cut_state(Source(args.state_310), "310"),
            "gpt-step310-weights.safetensors": cut_weights(Source(args.weights), "310"),
            "minilm-f32.safetensors": cut_minilm(Source(args.minilm)),
        }
    if args.command == "tiny" and args.check:
        differ = [n for n, data in files.items() if not (HERE / n).is_file() or (HERE / n).read_bytes() != data]
        extra = [str(p.relative_to(HERE)) for p in (HERE / "small").iterdir() if str(p.relative_to(HERE)) not in files]
        if differ or extra:
            sys.exit(f"testdata/make.py tiny: differs from what is committed: {', '.join(sorted(differ + extra))}")
        print(f"{len(files)} files are what this script makes")
        return
    for name, data in files.items():
        path = HERE / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        print(f"{len(data):>9}  {name}")


if __name__ == "__main__":
    main()
