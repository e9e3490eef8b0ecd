"""How codecs get the change of a base, for bench/peers.py. What is made of both counts as their time."""

from pathlib import Path

import numpy as np
import tensors
import z4ai

Z4AI_DTYPES = {"BF16": "bf16", "F16": "fp16", "F32": "fp32", "F64": "fp64"}


class Xor:
    """A codec on the exclusive or."""

    def __init__(self, codec):
        self.codec = codec
        self.buffer = np.empty(0, np.uint8)

    def given(self, base: np.ndarray) -> None:
        self.base = base
        if self.buffer.size != base.size:
            self.buffer = np.empty_like(base)

    def prepare(self, raw: np.ndarray) -> None:
        """Nothing to renew: compression destroys only a buffer that it makes itself."""

    def compress(self, raw: np.ndarray) -> bytes:
        np.bitwise_xor(raw, self.base, out=self.buffer)
        self.codec.prepare(self.buffer)
        return self.codec.compress(self.buffer)

    def decompress(self, packed: bytes) -> np.ndarray:
        return np.bitwise_xor(self.codec.decompress(packed), self.base, out=self.buffer)


class Difference(Xor):
    """A codec on the difference of the elements' bits as integers, modulo their width."""

    def __init__(self, codec, dtype: str):
        super().__init__(codec)
        self.element = np.dtype(f"u{np.dtype(tensors.NUMPY[dtype]).itemsize}")

    def compress(self, raw: np.ndarray) -> bytes:
        np.subtract(raw.view(self.element), self.base.view(self.element), out=self.buffer.view(self.element))
        return self.codec.compress(self.buffer)

    def decompress(self, packed: bytes) -> np.ndarray:
        change = self.codec.decompress(packed).view(self.element)
        np.add(change, self.base.view(self.element), out=self.buffer.view(self.element))
        return self.buffer


class Z4ai:
    """z4ai's deltas of buffers. It takes bytes objects only without copying: making them is not timed."""

    def __init__(self, dtype: str):
        self.dtype = Z4AI_DTYPES.get(dtype)

    def given(self, base: np.ndarray) -> None:
        self.base = base.tobytes()

    def prepare(self, raw: np.ndarray) -> None:
        self.raw = raw.tobytes()

    def compress(self, _raw: np.ndarray) -> bytes:
        return z4ai.compress_delta(self.raw, self.base, dtype=self.dtype, threads=1)

    def decompress(self, packed: bytes) -> np.ndarray:
        return np.frombuffer(z4ai.decompress_delta(packed, self.base), dtype=np.uint8)


def shared(old: Path, new: Path) -> dict[str, tuple[np.ndarray, np.ndarray | None]]:
    """For each dtype the bytes of the tensors that both files have, joined, new and old. Tensors without a
    counterpart are "opaque". Headers are free: they are nearly alike."""
    before = {t.name: t for t in tensors.read(old)}
    found: dict[str, list] = {}
    rest = []
    for t in tensors.read(new):
        b = before.get(t.name)
        if b is None or (b.dtype, b.shape) != (t.dtype, t.shape):
            rest.append(t.data.view(np.uint8))
        else:
            found.setdefault(t.dtype, []).append((t.data.view(np.uint8), b.data.view(np.uint8)))
    joined = {d: tuple(map(tensors.joined, zip(*pairs, strict=True))) for d, pairs in found.items()}
    return joined | ({"opaque": (np.concatenate(rest), None)} if rest else {})
