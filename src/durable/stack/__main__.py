"""The supervisor of a detached stack: `python -m durable.stack STATE_DIR EVENTS_DESCRIPTOR`."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from datetime import UTC, datetime
from pathlib import Path

from durable.settings import Settings
from durable.stack.errors import StackError
from durable.stack.events import Event
from durable.stack.stack import start_stack
from durable.stack.stopping import StopRequest
from durable.stack.supervisor import Supervisor


class Listener:
    """Whoever started us hears every event until the verdict; the log has them all."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    def report(self, event: Event) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        took = f" ({event.seconds:.2f} s)" if event.kind == "done" else ""
        sys.stdout.write(f"{now} {event.kind}: {event.text}{took}\n")
        sys.stdout.flush()
        self._tell(event)

    def _tell(self, event: Event) -> None:
        if self._descriptor is None:
            return
        try:
            os.write(self._descriptor, event.model_dump_json().encode() + b"\n")
        except BrokenPipeError:
            # Nobody listens any more; the stack goes on.
            event = Event(kind="running")
        if event.kind in ("running", "failed"):
            os.close(self._descriptor)
            self._descriptor = None


def main(state_dir: Path, descriptor: int) -> int:
    stop = StopRequest()
    signal.signal(signal.SIGTERM, stop.make)
    signal.signal(signal.SIGINT, stop.make)
    listener = Listener(descriptor)
    settings = Settings.from_environment(os.environ, state_dir=state_dir)
    supervisor = Supervisor(settings.state_dir, listener.report, stop)
    try:
        supervisor.run(lambda started: start_stack(started, settings))
    except StackError as error:
        # The person gets the sentence, the log its causes.
        traceback.print_exc()
        listener.report(Event(kind="failed", text=str(error)))
        return 1
    return 0


if __name__ == "__main__":
    code = main(Path(sys.argv[1]), int(sys.argv[2]))
    sys.stdout.flush()
    # The Temporal SDK's threads may abort an orderly interpreter exit.
    os._exit(code)
