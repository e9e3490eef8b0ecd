"""What operands of kinds 5, 6 and 7 predict (docs/format.md, §3.9) in testdata/format1, recomputed as fractions.

The reference decoder, which made the files, computes in integers, and `lmc.decode` in binary64; this is a third way:
each operation is exact, and then rounded once. Zeros, infinities and NaNs are those of binary64.
"""

import json
import math
import struct
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

FORMAT1 = Path(__file__).parents[3] / "testdata" / "format1"
NAN = 0x7FC00000


def value(bits: int) -> float:
    """Return the value of a binary32."""
    return float(struct.unpack("<f", bits.to_bytes(4, "little"))[0])


def bits_of(x: float) -> int:
    """Return the bits of a binary32, of any NaN those that the page says."""
    return NAN if math.isnan(x) else int.from_bytes(struct.pack("<f", x), "little")


def nearest(exact: Fraction) -> float:
    """Return the binary32 nearest to a number that is not 0."""
    magnitude = abs(exact)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    exponent -= magnitude < Fraction(2) ** exponent  # now of the first bit
    last = max(exponent - 23, -149)
    result = math.ldexp(round(magnitude / Fraction(2) ** last), last)  # ties go to even
    return math.copysign(result if result < 2.0**128 else math.inf, exact)


def once(special: np.float64, exact: Any) -> float:
    """Return a result in binary64 if it is special, else the exact one, rounded."""
    return float(special) if special == 0 or not np.isfinite(special) else nearest(exact())


def add(x: float, y: float) -> float:
    """Return x + y."""
    return once(np.float64(x) + np.float64(y), lambda: Fraction(x) + Fraction(y))


def multiply(x: float, y: float) -> float:
    """Return x · y."""
    return once(np.float64(x) * np.float64(y), lambda: Fraction(x) * Fraction(y))


def divide(x: float, y: float) -> float:
    """Return x ÷ y."""
    if math.isinf(y):
        return float(np.float64(x) / np.float64(y))
    return once(np.float64(x) / np.float64(y), lambda: Fraction(x) / Fraction(y))


def root(x: float) -> float:
    """Return √x."""

    def exact() -> Fraction:
        square = int(Fraction(x) * 4**200)
        whole = math.isqrt(square)
        return Fraction(2 * whole + (whole**2 != square), 2**201)  # far below the last bit, a half stands for any rest

    return once(np.sqrt(np.float64(x)), exact)


def prediction(kind: int, constants: Sequence[float], data: Sequence[float]) -> float:
    """Return the prediction of an element."""
    if kind == 5:
        return multiply(constants[0], data[0])
    if kind == 6:
        (b, h, a, c), (v0, m0, m1) = constants, data
        g = multiply(add(m1, -multiply(b, m0)), h)
        return add(multiply(a, v0), multiply(multiply(c, g), g))
    (a, s1, s0, e), (w0, m1, v1, *m0s) = constants, data
    u = multiply(s1, m1)
    for m0 in m0s:
        u = add(u, multiply(s0, m0))
    return add(multiply(a, w0), divide(u, add(root(v1), e)))


def predictions(operand: dict[str, Any], width: int, sources: Sequence[bytes]) -> list[int]:
    """Return the predictions of an operand of kind 5, 6 or 7 as their bits."""
    lists = []
    for ranges in filter(None, operand["ranges"]):
        parts = [sources[r["source"]][r["offset"] : r["offset"] + r["length"]] for r in ranges]
        lists.append(np.frombuffer(b"".join(parts), f"<u{width}").astype(np.uint32) << (32 - 8 * width))
    constants = [value(bits) for bits in operand["constants"]]
    rows = [[value(int(x)) for x in row] for row in zip(*lists, strict=True)]
    result = [bits_of(prediction(operand["kind"], constants, row)) for row in rows]
    return result if width == 4 else [(x + 0x7FFF + (x >> 16 & 1)) % 2**32 >> 16 for x in result]


def test_predictions_are_exact() -> None:
    """All three decoders of the operands of a file agree, for special numbers and for others."""
    kinds: Counter[int] = Counter()
    for path in sorted(path for path in FORMAT1.glob("*.json") if path.name != "bad.json"):
        records = json.loads(path.read_bytes())["file"]["records"]
        bases = [path.with_suffix(f".base{i}") for i in (1, 2)]
        sources = [base.read_bytes() for base in (path.with_suffix(".raw"), *bases) if base.exists()]
        for column in (column for record in records for column in record.get("columns", [])):
            operand = column.get("operand", {})
            if operand.get("kind") in (5, 6, 7):
                with np.errstate(all="ignore"):
                    expected = predictions(operand, 1 << column["width code"], sources)
                assert operand["decoded"]["predictions"] == expected, path
                kinds[operand["kind"]] += len(expected)
    assert kinds[5] > 200
    assert kinds[6] > 400
    assert kinds[7] > 1000
