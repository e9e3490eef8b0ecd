"""Which library tensors are of."""

import sys
from collections.abc import Mapping
from typing import Any

from lmc._errors import UsageError
from lmc._safetensors import NUMPY, check_framework
from lmc.sync._library import Library


def library_of(tensors: Mapping[str, Any]) -> Library:
    """The library of some tensors.

    Raises `UsageError` when there are none, `TypeError` when they are of no known library.
    """
    if not tensors:
        raise UsageError("there are no tensors")
    for framework, module, classes in (("pt", "torch", ("Tensor",)), ("np", "numpy", ("ndarray", "generic"))):
        # A caller that has a tensor has imported its library.
        loaded = sys.modules.get(module)
        kinds = tuple(getattr(loaded, name) for name in classes) if loaded else ()
        if all(isinstance(t, kinds) for t in tensors.values()):
            return library(framework)
    given = ", ".join(sorted({type(t).__name__ for t in tensors.values()}))
    raise TypeError(f"tensors must all be of torch, or all arrays of numpy, not {given}")


def library(framework: str) -> Library:
    """The library with a name, as in `lmc.safe_open`."""
    check_framework(framework, "lmc.sync")
    if framework in NUMPY:
        from lmc.sync._numpy import Numpy

        return Numpy()
    from lmc.sync._torch import Torch

    return Torch()
