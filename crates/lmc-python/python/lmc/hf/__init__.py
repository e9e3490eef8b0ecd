"""Hugging Face: models load from compressed files, and a `Trainer` keeps its older checkpoints in a store.

Once this module is imported, `from_pretrained` of transformers loads compressed models as it loads others:

>>> import lmc.hf
>>> model = AutoModelForCausalLM.from_pretrained(DIRECTORY)                   # doctest: +SKIP

where the directory, or the folder of a model in the hub's cache, has `model.safetensors.lmc`, or
`model.safetensors.index.json` with shards of which any are `.lmc` files. Deltas find their bases beside them.

>>> trainer = Trainer(..., callbacks=[lmc.hf.Callback()])                     # doctest: +SKIP

copies all checkpoints to a store, where each takes only the space of its changes, and removes all but the newest from
their directory; `lmc.hf.restore` brings one back.
"""

from lmc.hf import _load
from lmc.hf._callback import Callback, restore

__all__ = ["Callback", "restore"]

_load.install()
