"""Arrays in files, as in `safetensors.numpy`, compressed.

A saved file is a `.lmc` file; `lmc decompress` turns it into the safetensors file that `safetensors.numpy.save_file`
would have written, byte for byte. Loaded files may be compressed or not.

Arrays of dtypes that numpy lacks (BF16 and those of 8 bits) are of `ml_dtypes`, which must be installed to load them.
"""

import sys
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from lmc._errors import UnsupportedError, UsageError
from lmc._lmc import File, Tensor, TensorList, compress_tensors, compress_tensors_file
from lmc._safetensors import (
    ML_DTYPES,
    NUMPY,
    NUMPY_DTYPES,
    SMALL,
    Index,
    Path,
    SafetensorsFile,
    check_backend,
    check_data,
    check_framework,
    split,
)
from lmc._shards import Shards, bases, is_index, model

__all__ = ["load", "load_file", "safe_open", "save", "save_file"]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
Base: TypeAlias = Any
"""The bases of a delta: a buffer, a path, an open `lmc.File`, or a list of those."""

_NAMES = {numpy: name for name, numpy in (NUMPY_DTYPES | ML_DTYPES).items()}


def dtype_of(name: str) -> np.dtype[Any]:
    """The dtype with a name in files. Raises `UnsupportedError` when there is none."""
    if name in NUMPY_DTYPES:
        return np.dtype(NUMPY_DTYPES[name])
    if name not in ML_DTYPES:
        raise UnsupportedError(f"numpy has no dtype {name}: read the bytes with lmc.open")
    try:
        import ml_dtypes
    except ImportError as e:
        raise UnsupportedError(f"arrays of {name} need the package ml_dtypes: pip install ml_dtypes") from e
    found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, ML_DTYPES[name]))
    return found


def name_of(dtype: np.dtype[Any]) -> tuple[str | None, bool]:
    """The name of a dtype in files, if it has one, and whether elements are big-endian."""
    swapped = dtype.byteorder == ">" or (dtype.byteorder == "=" and sys.byteorder == "big")
    return _NAMES.get(dtype.name), swapped


def given(tensors: Mapping[str, Array]) -> TensorList:
    """Arrays to be saved.

    Raises `TypeError` and `lmc.UsageError` for values that are not arrays, or whose dtype safetensors lacks.
    """
    # Cached per dtype: there may be many arrays.
    made, kinds = TensorList(), dict[np.dtype[Any], tuple[str | None, bool]]()
    for name, array in tensors.items():
        if not isinstance(array, np.ndarray | np.generic):
            raise TypeError(f"tensor {name!r} must be a numpy array, not {type(array).__name__}")
        # The module of masked arrays is imported by those who have one.
        if type(array) is not np.ndarray and isinstance(array, np.ma.MaskedArray):
            raise UsageError(f"tensor {name!r} is masked, and files have no masks: save its `.data` and its `.mask`")
        dtype = array.dtype
        if dtype not in kinds:
            kinds[dtype] = name_of(dtype)
        kind, swapped = kinds[dtype]
        if kind is None:
            raise UsageError(f"tensor {name!r}: safetensors has no dtype {dtype.name}")
        # The file has the elements in C order, little-endian. An array that is so already is not copied.
        array = np.asarray(array, order="C")
        made.add(name, kind, array.shape, array.byteswap() if swapped else array)
    return made


def save(
    tensor_dict: Mapping[str, Array],
    metadata: dict[str, str] | None = None,
    *,
    base: Base = None,
    level: str = "default",
    threads: int | None = None,
) -> bytes:
    """Compresses arrays as a `.lmc` file in memory.

    `metadata` goes into the header of the safetensors file. `base`, `level` and `threads` are those of
    `lmc.compress`.

    Raises `TypeError` and `lmc.UsageError` for values that are not arrays, or whose dtype safetensors lacks.
    """
    tensors = given(tensor_dict)
    return compress_tensors(tensors, metadata=metadata, base=base, level=level, threads=threads)


def save_file(
    tensor_dict: Mapping[str, Array],
    filename: Path,
    metadata: dict[str, str] | None = None,
    *,
    base: Base = None,
    level: str = "default",
    threads: int | None = None,
) -> None:
    """Saves arrays as a `.lmc` file, which appears under its name only when complete and on disk, replacing another
    file.

    Raises what `save` does, and `lmc.IOError` (an `OSError`) when it cannot be written.
    """
    tensors = given(tensor_dict)
    compress_tensors_file(tensors, filename, metadata=metadata, base=base, level=level, threads=threads)


def load(data: Any, *, base: Base = None, threads: int | None = None) -> dict[str, Array]:
    """Loads the arrays of a file in memory (any C-contiguous buffer), a `.lmc` file or a safetensors file.

    Raises `lmc.FormatError` (a `ValueError`) for other or damaged data, `lmc.BaseMismatchError` for a delta whose base
    is missing, `TypeError` for a path or an open file.
    """
    check_data(data)
    with safe_open._of(File(data, base=base, threads=threads, plain=True)) as file:
        return file.get_tensors()


def load_file(
    filename: Path, *, backend: str = "mmap", base: Base = None, threads: int | None = None
) -> dict[str, Array]:
    """Loads the arrays of a model: a `.lmc` file or a safetensors file, the index of several, or a directory with one
    of these. All are decoded in parallel, into their own memory.

    `backend` exists for compatibility only; files are read, not mapped. Bases of a delta that lie beside it need not be
    given. Raises what `load` does, `lmc.IOError` (an `OSError`) when a file cannot be read, `lmc.NotFoundError` for a
    directory without a model, and `lmc.UsageError` for one with several.
    """
    with safe_open(filename, "np", backend=backend, base=base, threads=threads) as file:
        return file.get_tensors()


class safe_open(SafetensorsFile):
    """An open file, or all files of a model, given by their index or directory; arrays, or slices of them, are read one
    by one.

    Threads may share it. A slice reads only the rows that it needs.
    """

    def __new__(cls, filename: Path, *args: Any, **options: Any) -> Any:
        return super().__new__(_Model if cls is safe_open and is_index(model(filename)) else cls)

    def __init__(
        self,
        filename: Path,
        framework: str = "np",
        device: str = "cpu",
        *,
        backend: str = "mmap",
        base: Base = None,
        threads: int | None = None,
    ) -> None:
        check_framework(framework, "lmc.numpy", NUMPY)
        if device != "cpu":
            raise UsageError(f"device={device!r}: arrays of numpy are on the cpu")
        check_backend(backend)
        super().__init__(File(model(filename), base=bases(base), threads=threads, plain=True))

    @classmethod
    def _of(cls, file: File) -> "safe_open":
        self = object.__new__(cls)
        SafetensorsFile.__init__(self, file)
        return self

    def get_tensor(self, name: str) -> Array:
        """Reads an array. Raises `lmc.NotFoundError` when there is none with this name."""
        tensor = self._tensor(name)
        array = _empty(tensor, tensor.shape)
        self._file.read_into(name, array)
        return array

    def get_tensors(self) -> dict[str, Array]:
        """All arrays, by name, in the order of the file.

        Memory of arrays up to 64 KiB is freed in blocks of 2 MiB, each with its last array.
        """
        self._check_open()
        dtypes = {name: dtype_of(name) for name in self._header.dtypes()}
        large = self._header.tensors(SMALL)
        made = {t.name: np.empty(t.shape, dtypes[t.dtype]) for t in large}
        others = [(t.offset, made[t.name]) for t in large]
        array: Any = np.ndarray  # whose signature is generic
        small: dict[str, Array] = self._file.read_small_arrays(self._header, SMALL, others, array, dtypes)
        return self._all(made, small)

    def get_slice(self, name: str) -> "Slice":
        """An array whose parts are read by indexing. Raises what `get_tensor` does."""
        return Slice(self._file, self._tensor(name))


class _Model(Shards, safe_open):
    """The files of a model."""

    _one = safe_open


class Slice:
    """A tensor that is read by indexing: `file.get_slice("w")[10:20, :5]`."""

    def __init__(self, file: File, tensor: Tensor) -> None:
        self._file = file
        self._tensor = tensor

    def get_shape(self) -> list[int]:
        """The dimensions of the whole tensor."""
        return list(self._tensor.shape)

    def get_dtype(self) -> str:
        """The dtype, as safetensors names it."""
        return self._tensor.dtype

    def __getitem__(self, index: Index) -> Array:
        """Reads a new array. Indices are as in numpy, except booleans, lists, arrays and `None`.

        Raises `lmc.UsageError`, for one that is out of range also an `IndexError`.
        """
        tensor = self._tensor
        start, stop, key = split(index, tensor.shape)
        rows = _empty(tensor, (stop - start, *tensor.shape[1:]) if tensor.shape else ())
        if tensor.shape:
            self._file.read_rows_into(tensor.name, start, stop, rows)
        else:
            self._file.read_into(tensor.name, rows)
        chosen = rows[key]
        # A whole array needs no copy; a view of a part would keep the rest alive.
        return rows if chosen.shape == rows.shape and all(k == slice(None) for k in key) else np.array(chosen)


def _empty(tensor: Tensor, shape: tuple[int, ...]) -> Array:
    return np.empty(shape, dtype_of(tensor.dtype))
