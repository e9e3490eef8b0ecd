"""Figures of checkpoints, computed from their tensors with numpy alone, as the help of `lmc analyze` and `lmc diff` and
the docs of their results define them: what the statistics of lmc are compared with. Nothing of lmc is used.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

#: The bits of the exponent and of the mantissa of floats.
FLOATS = {"F64": (11, 52), "F32": (8, 23), "C64": (8, 23), "BF16": (8, 7), "F16": (5, 10)}
#: Bytes of an element as the codec counts them: halves of complex numbers.
WIDTHS = {"F64": 8, "I64": 8, "F32": 4, "C64": 4, "I32": 4, "BF16": 2, "F16": 2, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}


@dataclass(frozen=True)
class Held:
    """A tensor, or bytes of none."""

    name: str | None
    dtype: str
    shape: tuple[int, ...]
    data: bytes

    @property
    def width(self) -> int:
        return WIDTHS.get(self.dtype, 1)

    @property
    def bits(self) -> np.ndarray:
        """The elements as unsigned integers."""
        return np.frombuffer(self.data, f"<u{self.width}")

    @property
    def kind(self) -> str:
        """What the names that the tests use are of."""
        if self.name is None:
            return "other"
        for word, kind in (("exp_avg_sq", "exp_avg_sq"), ("exp_avg", "exp_avg"), ("master", "master")):
            if self.name.startswith(word + "."):
                return kind
        return "norm" if "norm" in self.name else "embedding" if "embed" in self.name else "weights"


def entropy(values: np.ndarray) -> float:
    """Bits of all values together: n·H."""
    if values.size == 0:
        return 0.0
    counts = np.unique(values, return_counts=True)[1].astype(np.float64)
    return float(-(counts * np.log2(counts / values.size)).sum())


def fields(t: Held) -> dict[str, Any]:
    """The entropies of a tensor's fields in bits, and its counts."""
    bits = t.bits.astype(np.uint64)
    exponent_bits, mantissa_bits = FLOATS.get(t.dtype, (0, 8 * t.width))
    exponents = bits >> np.uint64(mantissa_bits) & np.uint64((1 << exponent_bits) - 1)
    step = mantissa_bits if mantissa_bits <= 10 else 8
    pieces = [(at, min(step, mantissa_bits - at)) for at in range(0, mantissa_bits, step)]
    is_float = t.dtype in FLOATS
    magnitude = bits & np.uint64((1 << (8 * t.width - 1)) - 1) if is_float else bits
    return {
        "sign": entropy(bits >> np.uint64(8 * t.width - 1)) if is_float else 0.0,
        "exponent": entropy(exponents) if is_float else 0.0,
        "mantissa": sum(entropy(bits >> np.uint64(at) & np.uint64((1 << n) - 1)) for at, n in pieces),
        "zeros": int((magnitude == 0).sum()),
        "not_finite": int((exponents == (1 << exponent_bits) - 1).sum()) if is_float else 0,
        "exponents": set(exponents.tolist()) if is_float else set(),
    }


def figures(tensors: Iterable[Held]) -> dict[str, Any]:
    """`figures` of `lmc analyze --json`, but for the sizes by lmc."""
    tensors = list(tensors)
    each = [fields(t) for t in tensors]
    elements = sum(t.bits.size for t in tensors)
    raw = sum(len(t.data) for t in tensors)

    def mean(total: float) -> float:
        return total / elements if elements else 0.0

    return {
        "tensors": sum(t.name is not None for t in tensors),
        "elements": elements,
        "raw_size": raw,
        "element_bits": mean(8 * raw),
        "sign_entropy": mean(sum(f["sign"] for f in each)),
        "exponent_entropy": mean(sum(f["exponent"] for f in each)),
        "mantissa_entropy": mean(sum(f["mantissa"] for f in each)),
        "zeros": sum(f["zeros"] for f in each),
        "not_finite": sum(f["not_finite"] for f in each),
        "distinct_exponents": len(set().union(*(f["exponents"] for f in each))),
    }


def magnitudes(tensors: Iterable[Held]) -> dict[tuple[str, str], dict[int, int]]:
    """For each kind and dtype of floats, how many elements are from 2^e to below 2^(e+1), by e."""
    found: dict[tuple[str, str], dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for t in tensors:
        if t.dtype not in FLOATS or t.name is None:
            continue
        exponent_bits, mantissa_bits = FLOATS[t.dtype]
        bias = (1 << (exponent_bits - 1)) - 1
        bits = t.bits.astype(np.uint64) & np.uint64((1 << (8 * t.width - 1)) - 1)
        exponents = (bits[bits != 0] >> np.uint64(mantissa_bits)).astype(np.int64)
        for e, n in zip(*np.unique(exponents[exponents < (1 << exponent_bits) - 1], return_counts=True), strict=True):
            found[t.kind, t.dtype][int(e) - bias] += int(n)
    return {key: dict(counts) for key, counts in found.items() if counts}


def ordered(t: Held) -> list[int]:
    """The places of elements among the values of their type: exact, whatever the width."""
    if t.dtype in FLOATS:
        top = 1 << (8 * t.width - 1)
        return [b if b < top else top - 1 - b for b in t.bits.tolist()]
    if t.dtype.startswith("I"):
        return np.frombuffer(t.data, f"<i{t.width}").tolist()
    return t.bits.tolist()


def converted(t: Held, dtype: str) -> Held | None:
    """The elements in another type, as far as lmc converts them."""
    if dtype == t.dtype:
        return t
    if (t.dtype, dtype) == ("BF16", "F32"):
        return Held(t.name, dtype, t.shape, (t.bits.astype("<u4") << 16).astype("<u4").tobytes())
    if (t.dtype, dtype) == ("F32", "BF16"):
        bits = t.bits.astype(np.uint64)
        nearest = bits + np.uint64(0x7FFF) + (bits >> np.uint64(16) & np.uint64(1))
        return Held(t.name, dtype, t.shape, (nearest >> np.uint64(16)).astype("<u2").tobytes())
    return None


@dataclass
class Compared:
    """A tensor beside the one of its name before."""

    new: Held
    old: Held | None

    @property
    def both(self) -> tuple[Held, Held] | None:
        """The elements that have counterparts, and those."""
        old = self.old and converted(self.old, self.new.dtype)
        if not old:
            return None
        if len(old.data) == len(self.new.data):
            return self.new, old
        # Whole rows that both have.
        if not (self.new.shape and old.shape and self.new.shape[1:] == old.shape[1:]):
            return None
        cut = min(len(old.data), len(self.new.data))
        new, old = (Held(t.name, t.dtype, t.shape, t.data[:cut]) for t in (self.new, old))
        return new, old

    @property
    def is_same(self) -> bool:
        keys = [(t.name, t.dtype, t.shape, t.data) for t in (self.new, self.old) if t]
        return len(keys) == 2 and keys[0] == keys[1]

    @property
    def state(self) -> str:
        """What `lmc diff` calls it."""
        old, new = self.old, self.new
        if old is None:
            return "new"
        if old.dtype != new.dtype:
            return "retyped"
        if old.shape == new.shape:
            return "same" if old.data == new.data else "changed"
        return "reshaped" if len(old.data) == len(new.data) else "resized"


def pairs(old: Iterable[Held], new: Iterable[Held]) -> list[Compared]:
    before = {t.name: t for t in old}
    return [Compared(t, before.get(t.name)) for t in new]


def changes(compared: Iterable[Compared]) -> dict[str, Any]:
    """Counts of the elements that changed, and how far they moved."""
    n, changed, largest = 0, 0, 0
    levels: dict[int, int] = defaultdict(int)
    for c in compared:
        if c.both is None:
            continue
        new, old = c.both
        n += new.bits.size
        moved = new.bits != old.bits
        changed += int(moved.sum())
        if new.dtype == "BOOL":
            continue
        at = np.flatnonzero(moved).tolist()
        to, origin = ordered(new), ordered(old)
        for i in at:
            distance = abs(to[i] - origin[i])
            levels[distance.bit_length() - 1] += 1
            largest = max(largest, distance)
    distances = [levels[i] for i in range(max(levels, default=-1) + 1)]
    return {"compared": n, "changed": changed, "distances": distances, "largest_distance": largest}


def flips(compared: Iterable[Compared], width: int) -> list[int]:
    """For each bit from the lowest, how many elements have it changed."""
    counts = np.zeros(8 * width, np.int64)
    for c in compared:
        if c.both is not None:
            flipped = c.both[0].bits ^ c.both[1].bits
            counts += [int((flipped >> b & 1).sum()) for b in range(8 * width)]
    return counts.tolist()


def quantile(levels: list[int], share: float) -> int | None:
    """The i that this share of the changed elements does not exceed."""
    total, seen = sum(levels), 0
    for i, n in enumerate(levels):
        seen += n
        if total and seen >= math.ceil(share * total):
            return i
    return None


def difference_entropy(compared: Iterable[Compared]) -> tuple[int, int]:
    """The bytes of floats with counterparts, and the entropy of their differences given the exponents that they come
    from, in bytes: of each dtype by itself."""
    raw = 0
    symbols: dict[str, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    below = 0
    for c in compared:
        if c.both is None or c.new.dtype not in FLOATS or len(c.both[0].data) != len(c.new.data):
            continue
        new, old = c.both
        raw += len(new.data)
        width = 8 * new.width
        for to, origin, bits in zip(ordered(new), ordered(old), old.bits.tolist(), strict=True):
            d = (to - origin + (1 << (width - 1))) % (1 << width) - (1 << (width - 1))
            d = 2 * d if d >= 0 else -2 * d - 1
            key = ((bits << 1 | bits >> (width - 1)) & ((1 << width) - 1)) >> (width - 8)
            if width > 16:
                # The length, and the eight bits behind the first one; the others are as they are.
                rest = max(d.bit_length() - 9, 0)
                below += rest
                d = d.bit_length() << 9 | d >> rest
            symbols[new.dtype][key].append(d)
    total = sum(entropy(np.array(all_of, np.int64)) for of in symbols.values() for all_of in of.values())
    return raw, round((total + below) / 8)


def values(t: Held) -> np.ndarray | None:
    """The values of floats of 16 or more bits, not finite ones as NaN."""
    wide = {"F64": "<f8", "F32": "<f4", "C64": "<f4", "F16": "<f2"}
    if t.dtype == "BF16":
        found = (t.bits.astype("<u4") << 16).view("<f4").astype(np.float64)
    elif t.dtype in wide:
        found = np.frombuffer(t.data, wide[t.dtype]).astype(np.float64)
    else:
        return None
    return np.where(np.isfinite(found), found, np.nan)


def course(versions: list[Held]) -> dict[str, list[float | None]]:
    """A course, but for `changed` and `spikes`: of the same tensor in each checkpoint."""
    of = [values(t) for t in versions]
    if of[0] is None or not of[0].size:
        return {}
    updates = [b - a for a, b in itertools.pairwise(of)]

    def norm(x: np.ndarray) -> float | None:
        return None if np.isnan(x).all() else float(np.sqrt(np.nansum(x * x)))

    def rms(x: np.ndarray) -> float | None:
        return None if np.isnan(x).all() else float(np.sqrt(np.nanmean(x * x)))

    def ratio(a: float | None, b: float | None) -> float | None:
        return a / b if a is not None and b else None

    cosines: list[float | None] = [None]
    for before, after in itertools.pairwise(updates):
        both = ~np.isnan(before) & ~np.isnan(after)
        product = norm(before[both]) or 0
        product *= norm(after[both]) or 0
        cosines.append(ratio(float(before[both] @ after[both]), product))
    return {
        "norm": [norm(x) for x in of],
        "rms": [rms(x) for x in of],
        "update_norm": [norm(u) for u in updates],
        "update_rms": [rms(u) for u in updates],
        "ratio": [ratio(norm(u), norm(x)) for u, x in zip(updates, of, strict=False)],
        "cosine": cosines,
    }


def fits(t: Held) -> str | None:
    """A narrower type that has all values."""
    if not t.data or t.dtype == "C64":
        return None
    if t.dtype in ("F64", "F32"):
        values = np.frombuffer(t.data, f"<f{t.width}")
        if t.dtype == "F32" and not (t.bits & 0xFFFF).any():
            return "BF16"
        narrow = {"F64": ("F32", np.float32), "F32": ("F16", np.float16)}[t.dtype]
        with np.errstate(over="ignore"):
            back = values.astype(narrow[1]).astype(values.dtype)
        return narrow[0] if back.tobytes() == t.data else None
    if t.dtype == "F16":
        return None if (t.bits & 0xFF).any() else "F8_E5M2"
    if t.dtype in ("I64", "I32", "I16"):
        values = ordered(t)
        for name, bits in (("U8", 8), ("I8", 8), ("U16", 16), ("I16", 16), ("U32", 32), ("I32", 32)):
            low = -(1 << (bits - 1)) if name.startswith("I") else 0
            if bits < 8 * t.width and low <= min(values) and max(values) < low + (1 << bits):
                return name
    return None
