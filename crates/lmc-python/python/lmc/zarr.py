"""A codec for arrays of zarr: `zarr.create_array(..., compressors=lmc.zarr.LmcCodec())`.

zarr finds it by itself when it opens such an array, if the package `lmc-codec` is installed. Arrays of format 2 have
the codec of `lmc.numcodecs`.
"""

# mypy: disable-error-code="import-not-found,misc"

import asyncio
from dataclasses import dataclass
from typing import Any, Self

from zarr.abc.codec import BytesBytesCodec

from lmc._lmc import compress, decompress
from lmc._options import check_level
from lmc.numpy import name_of

__all__ = ["LmcCodec"]


@dataclass(frozen=True)
class LmcCodec(BytesBytesCodec):
    """Compresses each chunk as a `.lmc` file, by the type of its elements; `level` is that of `lmc.compress`.

    It should be the first compressor, so that it gets the elements. A chunk that is damaged raises
    `lmc.DamagedError`.
    """

    level: str = "default"
    is_fixed_size = False

    def __post_init__(self) -> None:
        check_level(self.level)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        return cls(**data.get("configuration", {}))

    def to_dict(self) -> dict[str, Any]:
        return {"name": "lmc", "configuration": {"level": self.level}}

    def compute_encoded_size(self, _input_byte_length: int, _chunk_spec: Any) -> int:
        raise NotImplementedError

    # One thread each, because zarr has several chunks coded at once.

    def _encode_sync(self, chunk: Any, spec: Any) -> Any:
        data, dtype = chunk.as_numpy_array(), spec.dtype.to_native_dtype()
        name = None if len(data) % dtype.itemsize else name_of(dtype)[0]
        return spec.prototype.buffer.from_bytes(compress(data, dtype=name, level=self.level, threads=1))

    def _decode_sync(self, chunk: Any, spec: Any) -> Any:
        return spec.prototype.buffer.from_bytes(decompress(chunk.as_numpy_array(), threads=1))

    async def _encode_single(self, chunk: Any, spec: Any) -> Any:
        return await asyncio.to_thread(self._encode_sync, chunk, spec)

    async def _decode_single(self, chunk: Any, spec: Any) -> Any:
        return await asyncio.to_thread(self._decode_sync, chunk, spec)
