"""Ends a process within its stated time, whatever hangs in it."""

import os
import sys
import threading
from collections.abc import Callable


def force_exit_after(seconds: float, report: Callable[[], None]) -> None:
    """Exits with 1 after so many seconds, unless the process has ended by itself before.

    A thread, because what hangs may be the event loop itself: a driver that waits for a server that
    was stopped waits through cancellation too. Nothing is lost by it: whatever was under way is
    found again by its key, as after a crash.
    """

    def exit_now() -> None:
        report()
        sys.stderr.flush()
        os._exit(1)

    timer = threading.Timer(seconds, exit_now)
    timer.daemon = True
    timer.start()
