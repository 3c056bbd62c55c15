"""How a command fails: a sentence on stderr, an exit code, and with --json an object on stdout."""

import os

from typer import TyperException

from durable.cli.render.output import (
    error_object,
    print_error,
    print_json,
    print_traceback,
    print_unknown_error,
    progress,
)

REFUSED = 1
USAGE = 2
INTERRUPTED = 130


def end_exit(end: SystemExit, code: int, as_json: bool) -> int:
    """Ends a command that was misused, was interrupted, or has reported its failure itself."""
    reason = end.__context__
    if code == INTERRUPTED:
        return end_interrupt(as_json)
    # The sentence is on stderr already; a command that exits by itself has printed its object.
    if as_json and isinstance(reason, TyperException):
        print_json(error_object("usage", reason.format_message()))
    return code


def end_interrupt(as_json: bool) -> int:
    progress.print("Interrupted.")
    if as_json:
        print_json(error_object("interrupted", "Interrupted."))
    return INTERRUPTED


def end_error(error: Exception, as_json: bool) -> int:
    """Ends a command that failed; an unexpected error is reported with its type."""
    known = _classify(error)
    if known is None:
        print_unknown_error(error)
        code, failure, sentence = REFUSED, "unexpected", f"{type(error).__name__}: {error}"
    else:
        (code, failure), sentence = known, str(error)
        print_error(sentence)
    if as_json:
        print_json(error_object(failure, sentence))
    if os.environ.get("DURABLE_DEBUG", "").lower() in ("1", "true", "yes", "on"):
        print_traceback()
    return code


def _classify(error: Exception) -> tuple[int, str] | None:
    """The exit code and the error code of an expected error."""
    # Imported here: these load the database and the models, which a success may not need.
    from durable.authority.db.errors import AuthorityBusyError, AuthorityError
    from durable.cli.input.manifests import ManifestError
    from durable.model.refusal import RefusalCode, RefusedError
    from durable.settings import SettingsError
    from durable.state_dir.record import StackError

    match error:
        case SettingsError():
            return USAGE, "settings"
        case ManifestError():
            return USAGE, "manifest"
        case RefusedError():
            code = error.refusal.code
            # What can never be accepted is wrong input, wherever that is found out.
            return USAGE if code is RefusalCode.INVALID else REFUSED, code.value
        case AuthorityBusyError():
            return REFUSED, "busy"
        case AuthorityError():
            return REFUSED, "authority"
        case StackError():
            return REFUSED, "stack"
        case _:
            return None
