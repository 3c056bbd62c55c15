"""Wait for something that must become true, and no longer than a deadline."""

import time
from collections.abc import Callable

DEADLINE_SECONDS = 180.0


def eventually(what: str, holds: Callable[[], bool]) -> None:
    give_up = time.monotonic() + DEADLINE_SECONDS
    while not holds():
        assert time.monotonic() < give_up, f"not in {DEADLINE_SECONDS:.0f} s: {what}"
        time.sleep(0.02)
