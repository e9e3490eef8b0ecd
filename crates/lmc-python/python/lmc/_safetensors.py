"""Reading safetensors files, compressed or not, for any array library."""

import os
from collections.abc import Iterable
from operator import index as as_int
from types import EllipsisType, TracebackType
from typing import Any, Final, Self, SupportsIndex, TypeAlias

from lmc._errors import NotFoundError, UsageError
from lmc._lmc import File, Tensor

Path: TypeAlias = str | os.PathLike[str]
"""Where a file is."""

Given: TypeAlias = tuple[str, str, tuple[int, ...], Any]
"""Name, dtype and shape of a tensor as files have them, and its memory."""

Index: TypeAlias = SupportsIndex | slice | EllipsisType | tuple[SupportsIndex | slice | EllipsisType, ...]
"""An index into a tensor."""

Key: TypeAlias = tuple[int | slice, ...]
"""An index with one entry for each of the first dimensions."""

# By the dtype's name in safetensors: its name in numpy and torch or, if numpy lacks it, in ml_dtypes and torch.
NUMPY_DTYPES: Final = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "U16": "uint16",
    "I16": "int16",
    "U32": "uint32",
    "I32": "int32",
    "U64": "uint64",
    "I64": "int64",
    "F16": "float16",
    "F32": "float32",
    "F64": "float64",
    "C64": "complex64",
}
ML_DTYPES: Final = {
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
}

# Names of frameworks, as safetensors has them.
TORCH: Final = ("pt", "torch", "pytorch")
NUMPY: Final = ("np", "numpy")
_OTHERS: Final = ("tf", "tensorflow", "jax", "flax", "mlx", "paddle")
_BACKENDS: Final = ("mmap", "pread")


def check_framework(framework: str, module: str, has: tuple[str, ...] = TORCH + NUMPY) -> None:
    """Checks `framework`, one of those that `module` has.

    Raises `UsageError` that names all.
    """
    if framework in has:
        return
    known = "must be 'pt' (also 'torch', 'pytorch') or 'np' (also 'numpy')"
    if framework in TORCH + NUMPY:
        known = f"{module} has {has[0]!r} (also {', '.join(map(repr, has[1:]))}); use lmc.safe_open"
    elif framework in _OTHERS:
        known += f"; open it with 'np' and convert the arrays to {framework}"
    raise UsageError(f"framework={framework!r}: {known}")


def check_backend(backend: str) -> None:
    """Checks `backend`, which exists for compatibility with safetensors and has no effect."""
    if backend not in _BACKENDS:
        raise UsageError(f"backend={backend!r}: must be 'mmap' or 'pread' (without effect)")


def check_data(data: object) -> None:
    """Checks that something may be data: raises `TypeError` for paths and open files, which `File` takes, too."""
    if isinstance(data, str | os.PathLike) or (hasattr(data, "read") and not is_buffer(data)):
        kind = type(data).__name__
        raise TypeError(f"data must be a C-contiguous bytes-like object, not {kind}; load_file loads files")


def is_buffer(data: Any) -> bool:
    """Whether something is a buffer, as an `mmap` is, which can be read like a file, too."""
    try:
        memoryview(data).release()
    except TypeError:
        return False
    return True


class OutOfRangeError(UsageError, IndexError):
    """An index is not in a tensor."""


class SafetensorsFile:
    """An open safetensors file, or a `.lmc` file of one."""

    def __init__(self, file: File) -> None:
        try:
            self._header = file.safetensors_header()
        except BaseException:
            file.close()
            raise
        self._file = file
        self._by_name: dict[str, Tensor] | None = None

    def keys(self) -> list[str]:
        """Names of the tensors, sorted."""
        return sorted(self.offset_keys())

    def offset_keys(self) -> list[str]:
        """Names of the tensors, in the order of the file."""
        self._check_open()
        return self._header.names()

    def metadata(self) -> dict[str, str] | None:
        """The `__metadata__` of the file, or nothing if there is none."""
        self._check_open()
        return self._header.metadata()

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def __enter__(self) -> Self:
        self._check_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._file.closed:
            raise UsageError("the file is closed")

    def _open(self) -> dict[str, Tensor]:
        """The tensors by name, in the order of the file."""
        self._check_open()
        # Built on demand: loading all of many tensors takes no longer.
        if self._by_name is None:
            self._by_name = {t.name: t for t in self._header.tensors()}
        return self._by_name

    def _tensor(self, name: str) -> Tensor:
        found = self._open().get(name)
        if found is None:
            raise NotFoundError(f"the file has no tensor {name!r}")
        return found


def split(index: Index, shape: Iterable[int]) -> tuple[int, int, Key]:
    """Rows `start` to `stop`, which contain everything that an index selects, and the index within them.

    Raises `UsageError`, for integers that are not in a dimension `OutOfRangeError`.
    """
    dims = tuple(shape)
    given = [_one(part) for part in (index if isinstance(index, tuple) else (index,))]
    if sum(one is Ellipsis for one in given) > 1:
        raise UsageError("an index may have only one Ellipsis")
    count = sum(one is not Ellipsis for one in given)
    if count > len(dims):
        raise UsageError(f"{count} indices for a tensor of {len(dims)} dimensions")
    key: list[int | slice] = []
    for one in given:
        if isinstance(one, EllipsisType):
            key += [slice(None)] * (len(dims) - count)
        else:
            key.append(one)
    for dim, (one, size) in enumerate(zip(key, dims, strict=False)):
        if isinstance(one, int) and not -size <= one < size:
            raise OutOfRangeError(f"index {one} is not in dimension {dim}, of size {size}")
    if not key:
        return 0, dims[0] if dims else 0, ()
    first, rows = key[0], dims[0]
    if isinstance(first, int):
        first %= rows
        return first, first + 1, (0, *key[1:])
    chosen = range(rows)[first]
    if not chosen:
        return 0, 0, (slice(None), *key[1:])
    start, stop = min(chosen), max(chosen) + 1
    step = slice(None, None, chosen.step)
    return start, stop, (step, *key[1:])


def _one(part: SupportsIndex | slice | EllipsisType) -> int | slice | EllipsisType:
    """A part of an index, integers of any library as those of Python."""
    if isinstance(part, slice | EllipsisType):
        return part
    try:
        # A boolean is a mask in numpy, and no number.
        if type(part).__name__ not in ("bool", "bool_"):
            return as_int(part)
    except TypeError:
        pass
    raise UsageError(f"slices are indexed by int, slice and Ellipsis, not {type(part).__name__}")
