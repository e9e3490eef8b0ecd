"""Makes glibc keep freed memory, so that codecs that return new memory from every call do not pay for page faults."""

import os
import sys

SETTINGS = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "1000000000000", "OMP_NUM_THREADS": "1"}


def keep_memory() -> None:
    """Starts this program again with the settings, which glibc reads when a process starts. For the top of a script."""
    if any(os.environ.get(k) != v for k, v in SETTINGS.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | SETTINGS)
