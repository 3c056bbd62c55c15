"""The supervisor of a detached stack: `python -m durable.stack STATE_DIR EVENTS_DESCRIPTOR`."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from pathlib import Path

from durable.settings import Settings
from durable.stack.detached import EventPipe
from durable.stack.shutdown import StopRequest
from durable.stack.stack import start_stack
from durable.stack.supervisor import StackEvent, Supervisor
from durable.state_dir.record import StackError


def main(state_dir: Path, descriptor: int) -> int:
    stop = StopRequest()
    signal.signal(signal.SIGTERM, stop.make)
    signal.signal(signal.SIGINT, stop.make)
    pipe = EventPipe(descriptor)
    settings = Settings.from_environment(os.environ, state_dir=state_dir)
    supervisor = Supervisor(settings.state_dir, pipe.report, stop)
    try:
        supervisor.run(lambda started: start_stack(started, settings))
    except StackError as error:
        # The person gets the sentence, the log the traceback.
        traceback.print_exc()
        pipe.report(StackEvent(kind="failed", text=str(error)))
        return 1
    return 0


if __name__ == "__main__":
    code = main(Path(sys.argv[1]), int(sys.argv[2]))
    sys.stdout.flush()
    # The Temporal SDK's threads may abort an orderly interpreter exit.
    os._exit(code)
