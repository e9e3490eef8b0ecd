"""Memory that another thread writes to while a function reads it."""

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

N = 3_000_000


@contextmanager
def written(change: Callable[[random.Random], None]) -> Iterator[None]:
    """Calls `change` over and over, in a thread, from before the block begins until after it ends."""
    stop, started = threading.Event(), threading.Event()

    def run() -> None:
        draw = random.Random(1)
        while not stop.is_set():
            change(draw)
            started.set()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert started.wait(60)
        yield
    finally:
        stop.set()
        thread.join()


def flips(memory: memoryview) -> Callable[[random.Random], None]:
    """Changes a byte anywhere."""

    def change(draw: random.Random) -> None:
        place = draw.randrange(len(memory))
        memory[place] = memory[place] + 1 & 255

    return change
