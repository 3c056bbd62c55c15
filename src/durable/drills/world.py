"""The stack that a drill is about, and how progress is shown to people who watch."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from durable.client import Durable
from durable.model.recovery.recoveries import RecoveryProgress


def _silent(_: object) -> None:
    pass


@dataclass(frozen=True)
class World:
    """A running stack: a connection to it, and its state directory."""

    durable: Durable
    directory: Path
    # A sentence about what happens next, and each step of a recovery.
    say: Callable[[str], None] = _silent
    follow: Callable[[RecoveryProgress], None] = _silent
