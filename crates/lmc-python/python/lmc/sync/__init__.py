"""Weights of a run, published by a trainer and followed in the memory of others.

>>> import lmc.sync, numpy as np, tempfile
>>> store = tempfile.mkdtemp() + "/run"  # or s3://bucket/run
>>> weights = {"w": np.zeros((100, 100), np.float32)}
>>> publisher = lmc.sync.Publisher(store)
>>> publisher.publish(weights, step=1).step
1
>>> follower = lmc.sync.Follower(store, framework="np")
>>> follower.update()
1
>>> weights["w"][3, 4] = 1
>>> _ = publisher.publish(weights, step=2)
>>> update = follower.stage()  # while the tensors are in use
>>> update.changed
1
>>> follower.commit(update)  # while they are not
>>> float(follower.tensors["w"][3, 4])
1.0

`docs/sync.md` states the promises; directories follow with `lmc.Store.follow` and `lmc follow`.
"""

from lmc.sync._follower import Follower, Update
from lmc.sync._part import Part
from lmc.sync._patch import Patch
from lmc.sync._publisher import Published, Publisher

__all__ = ["Follower", "Part", "Patch", "Published", "Publisher", "Update"]
