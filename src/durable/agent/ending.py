"""How a replica ended, read from what it left behind; the same after any number of restarts."""

import signal

from durable.agent.drivers import StopOrder
from durable.agent.replica_directory import ReplicaDirectory
from durable.model.states import ObservedState

# A shell says so of a command that a signal ended.
SIGNAL_BASE = 128


def end_of(directory: ReplicaDirectory, order: StopOrder | None) -> tuple[ObservedState, str]:
    """STOPPED for a good end or one that was asked for, else FAILED, with the evidence."""
    code = directory.exit_code
    if order is not None:
        # Work that finished before it could be cut off has finished.
        state = ObservedState.STOPPED if code == 0 else order.ends_as
        return state, f"{order.reason}: {describe(code)}"
    if code == 0:
        return ObservedState.STOPPED, describe(code)
    if code is None:
        return (
            ObservedState.FAILED,
            "it ended without an exit code: it was killed, or never came to start; "
            f"see {directory.path}",
        )
    return ObservedState.FAILED, f"{describe(code)}; see {directory.path}"


def describe(code: int | None) -> str:
    if code is None:
        return "killed"
    if code > SIGNAL_BASE:
        try:
            return f"exit code {code} ({signal.Signals(code - SIGNAL_BASE).name})"
        except ValueError:
            pass
    return f"exit code {code}"
