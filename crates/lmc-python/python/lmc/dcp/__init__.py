"""Checkpoints of `torch.distributed.checkpoint` as snapshots of a store: every save stores only what changed.

>>> import torch.distributed.checkpoint as dcp
>>> import lmc.dcp
>>> dcp.save(state, storage_writer=lmc.dcp.Writer("run", step=100))           # doctest: +SKIP
>>> dcp.load(state, storage_reader=lmc.dcp.Reader("run"))                     # doctest: +SKIP

The store is a directory, or a prefix of a bucket (`s3://bucket/run`); it is created if it is missing. A path may name
the step, too: `Writer("run/step-100")`. Every rank compresses its own chunks against those of the snapshot before,
whichever ranks wrote them. Any number of ranks may load what any number saved. `dcp.async_save` works with threads and
with processes.

`export` writes a checkpoint as PyTorch's own writer does. Everything else that is done with snapshots, `lmc.Store` and
`lmc snapshot` do.
"""

from lmc.dcp._export import export
from lmc.dcp._reader import Reader
from lmc.dcp._writer import Writer

__all__ = ["Reader", "Writer", "export"]
