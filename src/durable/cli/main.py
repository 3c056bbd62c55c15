"""The entry point of `durable`: runs a command and ends in its exit code."""

import os
import sys

# Everything else is imported inside, where an interrupt ends in a sentence, not a traceback.


def execute(arguments: list[str]) -> int:
    """Runs one command and returns its exit code; every error ends as a sentence."""
    as_json = "--json" in arguments
    try:
        from durable.cli.registry import app_for

        app_for(arguments)(arguments)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
        if code == 0:
            return code
        from durable.cli.errors import end_exit

        return end_exit(end, code, as_json)
    except KeyboardInterrupt:
        from durable.cli.errors import end_interrupt

        return end_interrupt(as_json)
    except Exception as error:
        from durable.cli.errors import end_error

        return end_error(error, as_json)
    return 0


def run() -> None:
    """The entry point."""
    code = execute(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    # The Temporal SDK's threads may abort an orderly interpreter exit.
    os._exit(code)
