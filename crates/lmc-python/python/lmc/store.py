"""The results of a store's methods: snapshots, what was saved, verified, pruned, copied and collected, and followers.

`lmc.Store` makes all of them.
"""

from lmc._lmc import DirectoryFollower, Snapshot, SnapshotReader, Staged
from lmc._records import (
    Copied,
    Cost,
    FileInfo,
    Garbage,
    Orphan,
    Problem,
    Pruned,
    PrunePlan,
    Saved,
    Verified,
    Version,
)

__all__ = [
    "Copied",
    "Cost",
    "DirectoryFollower",
    "FileInfo",
    "Garbage",
    "Orphan",
    "Problem",
    "PrunePlan",
    "Pruned",
    "Saved",
    "Snapshot",
    "SnapshotReader",
    "Staged",
    "Verified",
    "Version",
]
