"""Nested states, such as those of optimizers, in files: `save_state` and `load_state`."""

import os
from typing import Any

import lmc
from lmc import _state
from lmc._lmc import File
from lmc.torch._load import Device, as_device


def save_state(
    state: Any,
    filename: str | os.PathLike[str],
    *,
    base: Any = None,
    level: str = "default",
    threads: int | None = None,
) -> None:
    """Saves a nested state as a `.lmc` file: whatever `state_dict()` of modules, optimizers and schedulers return,
    together or alone. `lmc.Store.save` saves it as a snapshot of a store.

    A state consists of containers of Python's library; in them tensors and parameters (dense, of any shape and any
    dtype that safetensors has, and complex128), NumPy arrays and scalars, numbers, text, bytes, dates, paths and the
    like (docs/python.md lists all). It is restored equal and of the same types, NaNs bit for bit. What only code of its
    own could restore (named tuples, data classes, members of `Enum`) is saved by value, with a warning. Tensors of
    equal memory are saved once, and restored as one; tensors that overlap otherwise are saved separately. Strides and
    devices of tensors are not kept. `lmc.check_state` says beforehand what would be refused.

    The file holds a safetensors file: tensors by their place in the state, and a description of the rest in JSON.
    Nothing is pickled. With `base`, an earlier state's file, it is a delta. `level` and `threads` are as for
    `lmc.compress`.

    Raises `ValueError` (`lmc.UsageError`) for any other type, `RuntimeError` (`lmc.torch.TensorError`) for tensors
    without memory; both name the place in the state. `OSError` when the file cannot be written.
    """
    tensors, metadata = _state.encode(state)
    lmc.compress_tensors_file(tensors, filename, metadata=metadata, base=base, level=level, threads=threads)


def load_state(
    filename: Any,
    *,
    device: Device = "cpu",
    into: Any = None,
    base: Any = None,
    threads: int | None = None,
) -> Any:
    """Loads a state that `save_state` saved, or the file of a snapshot that `lmc.Store.save` saved. Nothing in the file
    is executed.

    Tensors are new ones on `device`. Where `into`, a state like the one saved, has a tensor or an array, that one is
    filled, on its own device, and is part of the result; it must have the same shape and dtype. Where it has a module,
    an optimizer or anything else with `state_dict` and `load_state_dict`, that loads what was saved of it. After an
    error in reading, they may be partly filled.

    Raises `lmc.UsageError` when the file holds no state or `into` does not fit, `lmc.UnsupportedError` when it needs a
    newer version, `lmc.DamagedError`, and what `safe_open` raises.
    """
    place = as_device(device)
    with File(filename, base=base, threads=threads, plain=True) as file:
        return _state.decode(file, file.safetensors_header(), "the file", into, place)
