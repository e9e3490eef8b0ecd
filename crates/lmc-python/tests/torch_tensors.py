"""Shared by the tests of lmc.torch: tensors of any dtype, and comparisons."""

import warnings
from math import prod

import torch

DTYPES = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "U16": torch.uint16,
    "I16": torch.int16,
    "U32": torch.uint32,
    "I32": torch.int32,
    "U64": torch.uint64,
    "I64": torch.int64,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "F64": torch.float64,
    "C64": torch.complex64,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "F8_E4M3FNUZ": torch.float8_e4m3fnuz,
    "F8_E5M2FNUZ": torch.float8_e5m2fnuz,
    "F8_E8M0": torch.float8_e8m0fnu,
    "F4": torch.float4_e2m1fn_x2,
}
SHAPES = [(), (1,), (7,), (0,), (3, 0, 2), (4, 6), (2, 3, 5, 2), (64, 33)]


def random_bits(dtype, shape, seed=0):
    """A tensor of any bits: NaNs of any payload, subnormal numbers, both zeros."""
    generator = torch.Generator().manual_seed(seed)
    end = 2 if dtype == torch.bool else 256
    raw = torch.randint(0, end, (prod(shape) * dtype.itemsize,), dtype=torch.uint8, generator=generator)
    return raw.view(dtype).view(shape)


def weights(*shape, seed=0, dtype=torch.float32):
    """A tensor that compresses as those of a model do."""
    return (torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * 0.02).to(dtype)


def shapes_of(dtype):
    """Shapes that torch and safetensors both have: F4 has an even number of elements in the last dimension."""
    return [shape for shape in SHAPES if shape or dtype != torch.float4_e2m1fn_x2]


def bits(tensor):
    return tensor.detach().clone(memory_format=torch.contiguous_format).view(-1).view(torch.uint8)


def same(a, b):
    """Whether two tensors are of the same dtype, shape and bits."""
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(bits(a), bits(b))


def assert_same(found, expected):
    """Compares dicts of tensors."""
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert same(found[name], tensor), name


def raised_by(f, *args, **kwargs):
    """The exception that a call raises."""
    try:
        f(*args, **kwargs)
    except Exception as e:
        return e
    return None


def no_warning(f, *args):
    """Calls something and ignores torch's warnings that it is new, or old."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return f(*args)
