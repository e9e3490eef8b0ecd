"""safetensors files as names, dtypes, shapes and bytes, without a tensor library."""

import json
import struct
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

# Unsigned integers of the same width stand for types that numpy lacks.
NUMPY = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "BF16": "<u2",
    "F8_E4M3": "u1",
    "F8_E5M2": "u1",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "i1",
    "U64": "<u8",
    "U32": "<u4",
    "U16": "<u2",
    "U8": "u1",
    "BOOL": "u1",
}


@dataclass
class Tensor:
    """One tensor; `data` is flat."""

    name: str
    dtype: str
    shape: list[int]
    data: np.ndarray


def read(path: Path) -> list[Tensor]:
    """The tensors of a file in the order of their bytes."""
    raw = np.fromfile(path, dtype=np.uint8)
    (length,) = struct.unpack("<Q", raw[:8].tobytes())
    header = json.loads(raw[8 : 8 + length].tobytes())
    header.pop("__metadata__", None)
    body = raw[8 + length :]
    tensors = []
    for name, t in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        start, end = t["data_offsets"]
        tensors.append(Tensor(name, t["dtype"], t["shape"], body[start:end].view(NUMPY[t["dtype"]])))
    return tensors


def write(path: Path, tensors: list[Tensor], metadata: dict[str, str] | None = None) -> None:
    """Writes a file with its tensors in the given order."""
    header: dict = {"__metadata__": metadata} if metadata else {}
    at = 0
    for t in tensors:
        header[t.name] = {"dtype": t.dtype, "shape": t.shape, "data_offsets": [at, at + t.data.nbytes]}
        at += t.data.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)))
        f.write(text)
        for t in tensors:
            f.write(memoryview(np.ascontiguousarray(t.data)).cast("B"))


def head(path: Path) -> np.ndarray:
    """The header of a file, with its length."""
    length = int(np.fromfile(path, dtype="<u8", count=1)[0])
    return np.fromfile(path, dtype=np.uint8, count=8 + length)


def joined(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Arrays of bytes in a row; without a copy if they follow each other in memory."""
    starts = [p.ctypes.data for p in parts]
    ends = [p.ctypes.data + p.nbytes for p in parts]
    if starts[1:] == ends[:-1] and parts[0].base is not None:
        whole = parts[0].base
        while whole.base is not None:
            whole = whole.base
        begin = starts[0] - whole.ctypes.data
        return whole[begin : begin + ends[-1] - starts[0]]
    return np.concatenate(parts)


def streams(path: Path) -> dict[str, tuple[np.ndarray, None]]:
    """The bytes of each dtype of a file, joined, as bench/peers.py has them; its header is "opaque"."""
    parts: dict[str, list[np.ndarray]] = {}
    for t in read(path):
        parts.setdefault(t.dtype, []).append(t.data.view(np.uint8))
    return {dtype: (joined(p), None) for dtype, p in parts.items()} | {"opaque": (head(path), None)}


def to_bf16(values: np.ndarray) -> np.ndarray:
    """fp32 to bf16, to nearest, ties to even; finite values only."""
    assert np.isfinite(values).all()
    u = values.astype("<f4").view("<u4")
    return ((u + (0x7FFF + ((u >> 16) & 1))) >> 16).astype("<u2")


def from_bf16(values: np.ndarray) -> np.ndarray:
    """bf16 to fp32, exactly."""
    return (values.astype("<u4") << 16).view("<f4")


def restored_size(lmc: Path, options: list[str], raw: Path, folder: Path, base: Path | None = None) -> int:
    """The size of a file compressed by the program `lmc`, which also restores it."""
    packed, back = folder / "packed.lmc", folder / "back"
    given = [] if base is None else ["--base", base]
    subprocess.run([lmc, "compress", "-q", "-f", *options, *given, "-o", packed, raw], check=True)
    # With nothing in common, the file needs no base.
    listed = subprocess.run([lmc, "list", "--json", packed], check=True, capture_output=True)
    needed = given if json.loads(listed.stdout)["bases"] else []
    subprocess.run([lmc, "decompress", "-q", "-f", *needed, "-o", back, packed], check=True)
    if back.read_bytes() != raw.read_bytes():
        sys.exit(f"{raw} does not come back")
    return packed.stat().st_size
