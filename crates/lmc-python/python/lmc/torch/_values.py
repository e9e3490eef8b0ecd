"""Values of torch in a state: how each is described, and built."""

import reprlib
from collections.abc import Iterable
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import Parameter

from lmc._errors import UsageError
from lmc._lmc import Tensor as Entry
from lmc._state._decode import Bytes, Decoder, wrong
from lmc._state._encode import Encoder, type_name
from lmc.torch._dtypes import torch_type
from lmc.torch._file import read_elsewhere
from lmc.torch._load import as_device as as_device
from lmc.torch._memory import check_byte_order, empty, written
from lmc.torch._memory import memory as memory
from lmc.torch._save import given
from lmc.torch._sharing import storage_of

# Complex dtypes that safetensors lacks are saved as pairs of these.
_PAIRS: Final = {torch.complex128: torch.float64, torch.complex32: torch.float16}
_PAIRED: Final = {str(dtype).removeprefix("torch."): (dtype, parts) for dtype, parts in _PAIRS.items()}
_DTYPES: Final = {name: dtype for name, dtype in vars(torch).items() if isinstance(dtype, torch.dtype)}


def encode(encoder: Encoder, value: Any, where: str, name: str) -> dict[str, Any] | None:
    """Describes a value, if a state can have it."""
    kind = type(value)
    if kind is Tensor or kind is Parameter:
        return _described(encoder, value, where, name)
    if kind is torch.Size:
        return {"torch.Size": list(value)}
    if kind is torch.dtype:
        return {"torch.dtype": str(value).removeprefix("torch.")}
    if kind is torch.device:
        return {"torch.device": str(value)}
    return None


def _described(encoder: Encoder, value: Tensor, where: str, name: str) -> dict[str, Any]:
    check_byte_order()
    if value.is_nested:
        raise UsageError(f"{where} is a nested tensor, which has no shape: save what `.unbind()` gives")
    if value.layout != torch.strided or value.is_quantized:
        raise UsageError(f"{where} is a tensor of {value.dtype} and {value.layout}: only dense ones can be saved")
    tensor = value.detach()
    # Memory that was saved before, possibly through another object.
    same: tuple[Any, ...] = (id(value),)
    if tensor.numel() and tensor.device.type != "meta":
        same = (tensor.device, tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)
        same += (tensor.is_conj(), tensor.is_neg())
    saved, is_new = encoder.once(same, value, name)
    if encoder.problems is not None and value.numel():
        tensor = tensor.new_empty((0,) * tensor.dim())  # is checked as the whole is, and not copied
    if is_new:
        if tensor.dtype in _PAIRS:
            tensor = torch.view_as_real(tensor.resolve_conj())
        encoder.tensors.append(given(saved, tensor.contiguous(), where))
    described: dict[str, Any] = {"tensor": saved}
    if value.dtype in _PAIRS:
        described["dtype"] = str(value.dtype).removeprefix("torch.")
    if value.requires_grad:
        described["requires_grad"] = True
    if type(value) is Parameter:
        described["parameter"] = True
    return described


def decode(decoder: Decoder, kind: str, value: dict[str, Any], into: Any, where: str) -> Any:
    """Builds a value from its description."""
    match kind, value:
        case "tensor", _:
            return _tensor(decoder, value, into, where)
        case "torch.Size", {"torch.Size": list(sizes)} if all(type(n) is int and abs(n) < 1 << 63 for n in sizes):
            return torch.Size(sizes)
        case "torch.dtype", {"torch.dtype": str(text)} if text in _DTYPES:
            return _DTYPES[text]
        case "torch.device", {"torch.device": str(text)}:
            return _device(text, where)
    wrong(where, f"this is not a {kind}: {reprlib.repr(value[kind])}")


def _tensor(decoder: Decoder, value: dict[str, Any], into: Any, where: str) -> Tensor:
    check_byte_order()
    name = value["tensor"]
    entry = decoder.entry(name, where)
    dtype, shape = torch_type(entry.name, entry.dtype, entry.shape)
    if "dtype" in value:
        paired = _PAIRED.get(str(value["dtype"]))
        if paired is None or dtype != paired[1] or shape[-1:] != (2,):
            wrong(where, f"{entry.dtype} of shape {list(entry.shape)} does not hold {reprlib.repr(value['dtype'])}")
        dtype, shape = paired[0], shape[:-1]
    if hasattr(into, "dtype"):
        return _into(decoder, into, entry, dtype, shape, where)
    parameter, grad = value.get("parameter") is True, value.get("requires_grad") is True
    if grad and not (dtype.is_floating_point or dtype.is_complex):
        wrong(where, f"a tensor of {dtype} has no gradient")
    known = (name, dtype, parameter, grad)
    if known not in decoder.made:
        tensor = _memory(decoder, entry, dtype, shape)
        if parameter:
            tensor = Parameter(tensor, requires_grad=grad)
        elif grad:
            tensor = tensor.detach().requires_grad_()
        decoder.made[known] = tensor
    made: Tensor = decoder.made[known]
    return made


def _memory(decoder: Decoder, entry: Entry, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    """The tensor that is read, or is to be read, from an entry of the file."""
    found = decoder.wanted(entry)
    if found is None:
        found = empty(shape, dtype, decoder.device)
        decoder.want(entry, found)
    if not isinstance(found, Tensor) or found.dtype != dtype or tuple(found.shape) != shape:
        wrong(entry.name, "it is said to be of two types")
    return found


def _into(decoder: Decoder, into: Any, entry: Entry, dtype: torch.dtype, shape: tuple[int, ...], where: str) -> Tensor:
    if not isinstance(into, Tensor):
        raise UsageError(f"into has at {where} a {type_name(type(into))}, but the state a tensor of torch")
    if into.dtype != dtype or tuple(into.shape) != shape or into.layout != torch.strided:
        raise UsageError(
            f"into has at {where} a tensor of {into.dtype} and shape {list(into.shape)}, "
            f"but the state one of {dtype} and shape {list(shape)}"
        )
    if into.is_meta:
        raise UsageError(f"into has at {where} a tensor on meta, where tensors have no values")
    if into.numel() and storage_of(into) is None:
        kind = type(into).__name__
        raise UsageError(f"into has at {where} a {kind}, which has no memory of its own: give what it is made of")
    target = into.detach()
    if decoder.wanted(entry) is None and target.is_contiguous() and not (target.is_conj() or target.is_neg()):
        decoder.want(entry, target)
        written(into)
    else:
        source = _memory(decoder, entry, dtype, shape)
        if source.data_ptr() != target.data_ptr() or source.device != target.device:
            decoder.then.append(partial(target.copy_, source))
    return into


def _device(text: str, where: str) -> torch.device:
    try:
        return torch.device(text)
    except RuntimeError:
        wrong(where, f"torch has no device {reprlib.repr(text)}")


def address(tensor: Tensor) -> int | None:
    """Where a tensor begins in main memory; `None` if it is on a device."""
    return tensor.data_ptr() if tensor.device.type == "cpu" else None


def apart(tensor: Tensor) -> tuple[Tensor, Any]:
    """Memory for the values of a tensor, and what copies them there."""
    fresh = empty(tuple(tensor.shape), tensor.dtype)
    return fresh, partial(tensor.copy_, fresh)


def read(file: Bytes, wanted: Iterable[tuple[Entry, Tensor]]) -> None:
    """Reads tensors that are on devices."""
    read_elsewhere(file, list(wanted))
