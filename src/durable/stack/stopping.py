"""A request to stop, as signal handlers make it: at once while starting, else when noticed."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from durable.stack.errors import StackError


class StopRequest:
    """A plain flag, because a signal handler must not take a lock."""

    def __init__(self) -> None:
        self.made = False
        self._at_once = False

    def make(self, *_: object) -> None:
        """Fit to be a signal handler."""
        self.made = True
        self._raise_if_due()

    @contextmanager
    def at_once(self) -> Generator[None]:
        """Inside, a request raises, because a step of the start may hang on a silent server."""
        self._at_once = True
        try:
            self._raise_if_due()
            yield
        except Exception as error:
            if self.made:
                # Whatever a library made of our exception on its way, this is what happened.
                raise _interrupted() from error
            raise
        finally:
            self._at_once = False

    @contextmanager
    def deferred(self) -> Generator[None]:
        """Inside, a request waits: between a new process and its record nothing may come."""
        self._at_once = False
        yield
        self._at_once = True
        self._raise_if_due()

    def _raise_if_due(self) -> None:
        if self.made and self._at_once:
            raise _interrupted()


def _interrupted() -> StackError:
    return StackError("The start was interrupted, and what had started is stopped.")
