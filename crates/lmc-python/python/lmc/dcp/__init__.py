"""Incremental checkpoints of `torch.distributed.checkpoint`: every save stores only the changes since the one before.

>>> import torch.distributed.checkpoint as dcp
>>> import lmc.dcp
>>> dcp.save(state, storage_writer=lmc.dcp.Writer("run/step-100"))            # doctest: +SKIP
>>> dcp.load(state, storage_reader=lmc.dcp.Reader("run/step-100"))            # doctest: +SKIP

Every rank compresses its own shards against those of the newest complete checkpoint of the same kind in the same
folder, whichever ranks wrote them. Any number of ranks may load what any number saved. `dcp.async_save` works with
threads and with processes. Paths are directories or URLs of fsspec (`s3://bucket/run/step-100`).

A directory holds all data that its checkpoint needs, by hard links to the files of earlier ones: any older checkpoint
may be deleted. For a URL, such as that of a bucket, data are in the folder `lmc-data` beside the checkpoints instead,
and `collect_garbage` deletes what no checkpoint needs any more, even while others are saved. In a directory on a file
system without hard links every save is whole, with a warning; with a `file://` URL it is a delta there, too. Ranks that
save without collectives (`use_collectives=False`) save whole checkpoints.

`unpack` (and `lmc unpack`) converts it to a plain checkpoint of `torch.distributed.checkpoint`, or to safetensors
files.
"""

from lmc.dcp._garbage import UnusedFiles, collect_garbage
from lmc.dcp._reader import Reader
from lmc.dcp._unpack import unpack
from lmc.dcp._writer import Writer

__all__ = ["Reader", "UnusedFiles", "Writer", "collect_garbage", "unpack"]
