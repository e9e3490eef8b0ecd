"""Lossless compression of language model checkpoints and training snapshots.

A `.lmc` file holds the bytes of another file, in blocks that are verified and can be decoded separately. Tensors of
safetensors files are coded by type, and any of them can be read alone. Any other file is compressed too, and all are
restored byte for byte.

>>> import lmc
>>> file = lmc.compress(b"any bytes " * 1000)
>>> lmc.decompress(file) == b"any bytes " * 1000
True

`lmc.numpy` saves and loads arrays as `safetensors.numpy` does, and `lmc.torch` tensors as `safetensors.torch`.
`lmc.store` has the results of a `Store`, and `lmc.analysis` the type of that of `analyze`.
"""

from lmc import store as store
from lmc._errors import (
    BaseMismatchError,
    DamagedError,
    Error,
    ExistsError,
    ExpiredError,
    FormatError,
    InternalError,
    LimitError,
    NotFoundError,
    StoreError,
    UnsupportedError,
    UsageError,
)
from lmc._errors import IOError as IOError
from lmc._lmc import (
    Base,
    Compressor,
    Decompressor,
    File,
    Store,
    Tensor,
    __version__,
    analyze,
    compress,
    compress_bound,
    compress_file,
    compress_into,
    compress_stream,
    compress_tensors,
    compress_tensors_file,
    decompress,
    decompress_file,
    decompress_into,
    decompress_stream,
    estimate,
)
from lmc._records import BaseInfo, Digest, Estimate, Summary
from lmc._safe_open import safe_open
from lmc._state import check_state

open = File

# Without the names of builtins, `open` and `IOError`: `from lmc import *` would replace them.
__all__ = [
    "Base",
    "BaseInfo",
    "BaseMismatchError",
    "Compressor",
    "DamagedError",
    "Decompressor",
    "Digest",
    "Error",
    "Estimate",
    "ExistsError",
    "ExpiredError",
    "File",
    "FormatError",
    "InternalError",
    "LimitError",
    "NotFoundError",
    "Store",
    "StoreError",
    "Summary",
    "Tensor",
    "UnsupportedError",
    "UsageError",
    "__version__",
    "analyze",
    "check_state",
    "compress",
    "compress_bound",
    "compress_file",
    "compress_into",
    "compress_stream",
    "compress_tensors",
    "compress_tensors_file",
    "decompress",
    "decompress_file",
    "decompress_into",
    "decompress_stream",
    "estimate",
    "safe_open",
]
