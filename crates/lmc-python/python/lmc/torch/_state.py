"""Nested states, such as those of optimizers: `save_state` and `load_state`."""

import json
import os
from typing import Any, Final

import lmc
from lmc._errors import DamagedError, UnsupportedError, UsageError
from lmc.torch._decode import Decoder
from lmc.torch._encode import Encoder
from lmc.torch._file import TensorFile
from lmc.torch._load import Device, as_device
from lmc.torch._memory import check_byte_order

# The key of the description in the file's metadata.
_KEY: Final = "lmc.state"
_VERSION: Final = 1


def save_state(
    state: Any,
    filename: str | os.PathLike[str],
    *,
    base: Any = None,
    level: str = "default",
    threads: int | None = None,
) -> None:
    """Saves a nested state as a `.lmc` file: whatever `state_dict()` of modules, optimizers and schedulers return,
    together or alone.

    A state consists of `dict`, `OrderedDict`, `Counter`, `list` and `tuple`; in them tensors and parameters (dense, of
    any shape and any dtype that safetensors has, and complex128), NumPy arrays and scalars, `None`, `bool`, `int`,
    `float`, `complex`, `str`, `bytes`, `bytearray`, `torch.Size`, `torch.dtype` and `torch.device`. It is restored
    equal and of the same types, NaNs bit for bit. Tensors of equal memory are saved once, and restored as one; tensors
    that overlap otherwise are saved separately. Strides and devices of tensors are not kept.

    The file holds a safetensors file: tensors by their place in the state, and a description of the rest in JSON.
    Nothing is pickled. With `base`, an earlier state's file, it is a delta. `level` and `threads` are as for
    `lmc.compress`.

    Raises `ValueError` (`lmc.UsageError`) for any other type, `RuntimeError` (`lmc.torch.TensorError`) for tensors
    without memory; both name the place in the state. `OSError` when the file cannot be written.
    """
    check_byte_order()
    encoder = Encoder()
    description = {"version": _VERSION, "state": encoder.encode(state)}
    text = json.dumps(description, allow_nan=False, separators=(",", ":"))
    metadata = {_KEY: text}
    lmc.compress_tensors_file(
        encoder.tensors, filename, metadata=metadata, base=base, level=level, threads=threads
    )


def load_state(
    filename: Any,
    *,
    device: Device = "cpu",
    into: Any = None,
    base: Any = None,
    threads: int | None = None,
) -> Any:
    """Loads a state that `save_state` saved. Nothing in the file is executed.

    Tensors are new ones on `device`. Where `into`, a state like the one saved, has a tensor, that one is filled, on its
    own device, and is part of the result; it must have the same shape and dtype. After an error in reading, it may be
    partly filled.

    Raises `lmc.UsageError` when the file holds no state or `into` does not fit, `lmc.UnsupportedError` when it needs a
    newer version, `lmc.DamagedError`, and what `safe_open` raises.
    """
    place = as_device(device)
    with TensorFile(filename, base=base, threads=threads) as file:
        decoder = Decoder(file, place)
        state = decoder.decode(_description(file), into)
        decoder.fill()
    return state


def _description(file: TensorFile) -> Any:
    text = (file.metadata() or {}).get(_KEY)
    if text is None:
        raise UsageError("the file holds tensors but no state: load_file loads them")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise DamagedError(f"the description of the state is invalid: {e}") from e
    version = found.get("version") if isinstance(found, dict) else None
    if type(version) is not int or "state" not in found:
        raise DamagedError("the description of the state is invalid: it has no version, or no state")
    if version != _VERSION:
        raise UnsupportedError(f"the state has version {version}, but this lmc knows only {_VERSION}: use a newer one")
    return found["state"]
