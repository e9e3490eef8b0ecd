"""Values of numpy in a state: how each is described, and built."""

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


def encode(encoder: Encoder, value: Any, where: str, name: str) -> dict[str, Any] | None:
    """Describes a value, if a state can have it."""
    if type(value) is not np.ndarray and not isinstance(value, np.generic):
        return None
    kind, swapped = name_of(value.dtype)
    if kind is None:
        raise UsageError(
            f"{where} is of numpy's dtype {value.dtype}, which a state cannot have: convert it, or leave it out"
        )
    array = np.asarray(value, order="C")
    in_file = array.byteswap() if swapped else array
    text = ML_DTYPES[kind] if kind in ML_DTYPES else value.dtype.str
    if isinstance(value, np.generic):
        return {"numpy": text.replace(">", "<"), "value": in_file.tobytes().hex()}
    saved, is_new = encoder.once((id(value),), value, name)
    if is_new:
        encoder.tensors.append((saved, kind, value.shape, in_file))
    return {"ndarray": saved, "dtype": text}


def decode(decoder: Decoder, kind: str, value: dict[str, Any], into: Any, where: str) -> Any:
    """Builds a value from its description."""
    match kind, value:
        case "numpy", {"numpy": str(text), "value": data} if text in _TEXTS:
            dtype = dtype_of(_TEXTS[text]).newbyteorder("<")
            return np.frombuffer(unhex(data, dtype.itemsize, where), dtype)[0]
        case "ndarray", {"dtype": str(text)} if text.replace(">", "<") in _TEXTS:
            return _array(decoder, value["ndarray"], text, into, where)
    wrong(where, f"this is not a {kind}: {reprlib.repr(value[kind])}")


def _array(decoder: Decoder, name: Any, text: str, into: Any, where: str) -> Array:
    entry, in_file = decoder.entry(name, where), _TEXTS[text.replace(">", "<")]
    if entry.dtype != in_file:
        wrong(where, f"{entry.dtype} is not an array of {text!r}")
    little = dtype_of(in_file).newbyteorder("<")
    dtype = little.newbyteorder(">") if text.startswith(">") else little
    if hasattr(into, "dtype"):
        return _into(decoder, into, entry, dtype, little, where)
    if (name, text) not in decoder.made:
        array = _memory(decoder, entry, little)
        if dtype != little:
            array = _copied(decoder, array, _empty(entry, dtype))
        decoder.made[name, text] = array
    made: Array = decoder.made[name, text]
    return made


def _memory(decoder: Decoder, entry: Entry, little: np.dtype[Any]) -> Array:
    """The array that is read, or is to be read, from an entry of the file."""
    found = decoder.wanted(entry)
    if found is None:
        found = _empty(entry, little)
        decoder.want(entry, found)
    if not isinstance(found, np.ndarray) or found.dtype != little:
        wrong(entry.name, "it is said to be of two types")
    return found


def _into(decoder: Decoder, into: Any, entry: Entry, dtype: np.dtype[Any], little: np.dtype[Any], where: str) -> Array:
    if not isinstance(into, np.ndarray):
        raise UsageError(f"into has at {where} a {type_name(type(into))}, but the state an array of numpy")
    if into.dtype != dtype or into.shape != entry.shape:
        raise UsageError(
            f"into has at {where} an array of {into.dtype} and shape {list(into.shape)}, "
            f"but the state one of {dtype} and shape {list(entry.shape)}"
        )
    if not into.flags.writeable:
        raise UsageError(f"into has at {where} an array that is read-only")
    if decoder.wanted(entry) is None and dtype == little and into.flags.c_contiguous:
        decoder.want(entry, into)
        return into
    source = _memory(decoder, entry, little)
    return into if source is into else _copied(decoder, source, into)


def _copied(decoder: Decoder, source: Array, target: Array) -> Array:
    """An array that gets the values of another once that is read."""
    decoder.then.append(partial(np.copyto, target, source))
    return target


def _empty(entry: Entry, dtype: np.dtype[Any]) -> Array:
    try:
        return np.empty(entry.shape, dtype)
    except MemoryError as e:
        raise LimitError(f"out of memory for an array of shape {list(entry.shape)} and {dtype}: {e}") from e


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
