"""Values of numpy in a state: how each is described, and built."""

import re
import reprlib
from functools import partial
from typing import Any, Final

import numpy as np

from lmc._errors import LimitError, UsageError
from lmc._lmc import Tensor as Entry
from lmc._safetensors import ML_DTYPES, NUMPY_DTYPES
from lmc._state._decode import Decoder, unhex, wrong
from lmc._state._encode import Encoder, type_name
from lmc.numpy import Array, dtype_of, name_of

# By the text that a description has for a dtype: its name in files.
_TEXTS: Final = {np.dtype(of).newbyteorder("<").str: name for name, of in NUMPY_DTYPES.items()} | {
    of: name for name, of in ML_DTYPES.items()
}

# Dtypes that files lack, little-endian: an element is saved as one of another dtype, along a last dimension.
_OTHERS: Final = re.compile(r"<c16|<[mM]8(\[\d{0,9}[a-zA-Zμ]+\])?|\|[SV]\d{1,9}|<U\d{1,9}")
_CARRIERS: Final = {"c": ("F64", 2), "m": ("I64", 1), "M": ("I64", 1)}


def encode(encoder: Encoder, value: Any, where: str, name: str) -> dict[str, Any] | None:
    """Describes a value, if a state can have it."""
    if type(value) is not np.ndarray and not isinstance(value, np.generic):
        return None
    dtype = value.dtype
    kind, swapped = name_of(dtype)
    text = ML_DTYPES[kind] if kind in ML_DTYPES else dtype.str
    scalar = isinstance(value, np.generic)
    other = _OTHERS.fullmatch(text.replace(">", "<")) and dtype.names is None and (scalar or dtype.itemsize)
    if kind is None and not other:
        raise UsageError(f"{where} is of numpy's dtype {dtype}, which a state cannot have: convert it, or leave it out")
    if encoder.problems is not None:
        return {}  # without a copy
    array = np.asarray(value, order="C")
    in_file = array.byteswap() if swapped else array
    if scalar:
        return {"numpy": text.replace(">", "<"), "value": in_file.tobytes()[: dtype.itemsize].hex()}
    saved, is_new = encoder.once((id(value),), value, name)
    if is_new:
        shape = value.shape
        if kind is None:
            kind, parts = _carrier(dtype)
            shape = *shape, parts
            in_file = np.frombuffer(in_file, np.uint8) if in_file.nbytes else np.empty(0, np.uint8)
        encoder.tensors.append((saved, kind, shape, in_file))
    return {"ndarray": saved, "dtype": text}


def _carrier(dtype: np.dtype[Any]) -> tuple[str, int]:
    """The dtype in files of what an element of another dtype consists of, and how many of those."""
    return _CARRIERS.get(dtype.kind, ("U8", dtype.itemsize))


def _little(text: str) -> np.dtype[Any] | None:
    """The little-endian dtype of a text, if it is one of those that a state can have."""
    text = text.replace(">", "<")
    if text in _TEXTS:
        return dtype_of(_TEXTS[text]).newbyteorder("<")
    try:
        return np.dtype(text) if _OTHERS.fullmatch(text) else None
    except (TypeError, ValueError):
        return None


def decode(decoder: Decoder, kind: str, value: dict[str, Any], into: Any, where: str) -> Any:
    """Builds a value from its description."""
    match kind, value:
        case "numpy", {"numpy": str(text), "value": data} if (dtype := _little(text)) is not None and ">" not in text:
            return np.ndarray((), dtype, unhex(data, dtype.itemsize, where))[()]
        case "ndarray", {"dtype": str(text)} if (dtype := _little(text)) is not None and dtype.itemsize:
            return _array(decoder, value["ndarray"], text, dtype, into, where)
    wrong(where, f"this is not a {kind}: {reprlib.repr(value[kind])}")


def _array(decoder: Decoder, name: Any, text: str, little: np.dtype[Any], into: Any, where: str) -> Array:
    entry = decoder.entry(name, where)
    in_file, shape = _TEXTS.get(text.replace(">", "<")), entry.shape
    if in_file is None:
        in_file, parts = _carrier(little)
        shape = shape[:-1] if shape[-1:] == (parts,) else wrong(where, f"{list(shape)} is not of elements of {text!r}")
    if entry.dtype != in_file:
        wrong(where, f"{entry.dtype} is not an array of {text!r}")
    dtype = little.newbyteorder(">") if text.startswith(">") else little
    if hasattr(into, "dtype"):
        return _into(decoder, into, entry, shape, dtype, little, where)
    if (name, text) not in decoder.made:
        array = _memory(decoder, entry, shape, little)
        if dtype != little:
            array = _copied(decoder, array, _empty(shape, dtype))
        decoder.made[name, text] = array
    made: Array = decoder.made[name, text]
    return made


def _memory(decoder: Decoder, entry: Entry, shape: tuple[int, ...], little: np.dtype[Any]) -> Array:
    """The array that is read, or is to be read, from an entry of the file."""
    found = decoder.wanted(entry)
    if found is None:
        found = _empty(shape, little)
        decoder.want(entry, found)
    if not isinstance(found, np.ndarray) or found.dtype != little:
        wrong(entry.name, "it is said to be of two types")
    return found


def _into(
    decoder: Decoder,
    into: Any,
    entry: Entry,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    little: np.dtype[Any],
    where: str,
) -> Array:
    if not isinstance(into, np.ndarray):
        raise UsageError(f"into has at {where} a {type_name(type(into))}, but the state an array of numpy")
    if into.dtype != dtype or into.shape != shape:
        raise UsageError(
            f"into has at {where} an array of {into.dtype} and shape {list(into.shape)}, "
            f"but the state one of {dtype} and shape {list(shape)}"
        )
    if not into.flags.writeable:
        raise UsageError(f"into has at {where} an array that is read-only")
    if decoder.wanted(entry) is None and dtype == little and into.flags.c_contiguous:
        decoder.want(entry, into)
        return into
    source = _memory(decoder, entry, shape, little)
    return into if source is into else _copied(decoder, source, into)


def _copied(decoder: Decoder, source: Array, target: Array) -> Array:
    """An array that gets the values of another once that is read."""
    decoder.then.append(partial(np.copyto, target, source))
    return target


def _empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    try:
        return np.empty(shape, dtype)
    except MemoryError as e:
        raise LimitError(f"out of memory for an array of shape {list(shape)} and {dtype}: {e}") from e


def address(array: Array) -> int | None:
    """Where an array begins in main memory."""
    return array.ctypes.data


def apart(array: Array) -> tuple[Array, Any]:
    """Memory for the values of an array, and what copies them there."""
    fresh = np.empty_like(array)
    return fresh, partial(np.copyto, array, fresh)


def memory(array: Array) -> Any:
    """The memory of a contiguous array as a buffer of bytes: arrays of dtypes that numpy lacks export none."""
    return array.reshape(-1).view(np.uint8)
