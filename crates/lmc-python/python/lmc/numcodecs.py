"""A codec of numcodecs, as arrays of zarr's format 2 have: `zarr.create_array(..., compressors=lmc.numcodecs.Lmc(),
zarr_format=2)`.

numcodecs finds it by itself when an array names it, if the package `lmc-codec` is installed.
"""

# mypy: disable-error-code="import-not-found,misc"

from typing import Any

from numcodecs.abc import Codec
from numcodecs.compat import ensure_contiguous_ndarray

from lmc._errors import UsageError
from lmc._lmc import compress, decompress, decompress_into
from lmc._options import check_level
from lmc.numpy import name_of

__all__ = ["Lmc"]


class Lmc(Codec):
    """Compresses arrays as `.lmc` files, by the type of their elements; `level` is that of `lmc.compress`.

    Damaged data raise `lmc.DamagedError`.
    """

    codec_id = "lmc"

    def __init__(self, level: str = "default") -> None:
        check_level(level)
        self.level = level

    # One thread each, because zarr has several chunks coded at once.

    def encode(self, buf: Any) -> bytes:
        """Compresses an array or a buffer."""
        array = ensure_contiguous_ndarray(buf)
        name, swapped = name_of(array.dtype)
        return compress(array, dtype=None if swapped else name, level=self.level, threads=1)

    def decode(self, buf: Any, out: Any = None) -> Any:
        """Restores the bytes, to `out` if given, which must be of their size."""
        data = ensure_contiguous_ndarray(buf)
        if out is None:
            return decompress(data, threads=1)
        target = ensure_contiguous_ndarray(out)
        if (size := decompress_into(data, target, threads=1)) != target.nbytes:
            raise UsageError(f"out has {target.nbytes} bytes, but the data {size}")
        return out
