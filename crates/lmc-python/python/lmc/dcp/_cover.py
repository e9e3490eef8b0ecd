"""Whether the chunks of a tensor make all of it."""

from __future__ import annotations

import math

import numpy as np
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, TensorStorageMetadata

import lmc

#: Most cells of the grid of a tensor's chunks: a million, and these for each chunk. Chunks of a device mesh are a cell
#: each.
_CELLS = 1 << 20
_CELLS_EACH = 64
#: Most dimensions of an array of numpy 1.
_DIMENSIONS = 32


def check_cover(fqn: str, tensor: TensorStorageMetadata) -> None:
    """Checks that the chunks of a tensor are boxes of it, which have each of its elements once.

    Raises `lmc.FormatError` with the chunk that is wrong, `lmc.LimitError` for ten thousands of chunks of irregular
    sizes.
    """
    shape = tuple(tensor.size)
    if min(shape, default=0) < 0:
        raise lmc.FormatError(f"{fqn}: its shape {list(shape)} is that of no tensor")
    chunks = [chunk for chunk in tensor.chunks if math.prod(chunk.sizes)]
    for chunk in chunks:
        if not _is_inside(chunk, shape):
            raise lmc.FormatError(f"{fqn}: its chunk {shown(chunk)} is not inside of its shape {list(shape)}")
    if math.prod(shape) and [tuple(chunk.sizes) for chunk in chunks] != [shape]:
        _check_cells(fqn, shape, chunks)


def _is_inside(chunk: ChunkStorageMetadata, shape: tuple[int, ...]) -> bool:
    if not len(chunk.offsets) == len(chunk.sizes) == len(shape):
        return False
    return all(min(o, n) >= 0 and o + n <= end for o, n, end in zip(chunk.offsets, chunk.sizes, shape, strict=True))


def _check_cells(fqn: str, shape: tuple[int, ...], chunks: list[ChunkStorageMetadata]) -> None:
    """Marks the cells of the chunks in the grid that all of their edges make."""
    edges = [
        np.unique([0, shape[d], *(edge for c in chunks for edge in (c.offsets[d], c.offsets[d] + c.sizes[d]))])
        for d in range(len(shape))
    ]
    grid = tuple(len(e) - 1 for e in edges)
    if len(grid) > _DIMENSIONS or math.prod(grid) > _CELLS + _CELLS_EACH * len(chunks):
        raise lmc.LimitError(f"{fqn}: its {len(chunks)} chunks are too irregular")
    marked = np.zeros(grid, bool)
    for chunk in chunks:
        begins = (np.searchsorted(e, o) for e, o in zip(edges, chunk.offsets, strict=True))
        ends = (np.searchsorted(e, o + n) for e, o, n in zip(edges, chunk.offsets, chunk.sizes, strict=True))
        cells = tuple(slice(begin, end) for begin, end in zip(begins, ends, strict=True))
        if marked[cells].any():
            raise lmc.FormatError(f"{fqn}: its chunk {shown(chunk)} overlaps another one")
        marked[cells] = True
    if not marked.all():
        missing = math.prod(shape) - sum(math.prod(chunk.sizes) for chunk in chunks)
        raise lmc.FormatError(
            f"{fqn}: its chunks do not cover its shape {list(shape)}: {missing} of {math.prod(shape)} elements are "
            "missing"
        )


def shown(chunk: ChunkStorageMetadata) -> str:
    """A chunk in messages: `[2..4, 0..8]`."""
    ranges = (f"{o}..{o + n}" for o, n in zip(chunk.offsets, chunk.sizes, strict=False))
    return f"[{', '.join(ranges)}]"
