"""The options that commands share, and the settings that follow from them."""

import os
import uuid
from pathlib import Path
from typing import Annotated, Any

import typer

from durable.settings import Settings


def _directory(text: str) -> Path:
    # What an unset shell variable leaves behind must not mean the current directory.
    if not text.strip():
        raise typer.BadParameter("it is empty; give a directory, or omit the option")
    return Path(text)


def state_dir_option(default: str) -> Any:
    """The option, with help that names the default of its command."""
    return typer.Option(
        "--state-dir",
        parser=_directory,
        metavar="DIRECTORY",
        help=f"The stack's state directory (or DURABLE_STATE_DIR; default {default}).",
        show_default=False,
    )


StateDir = Annotated[Path | None, state_dir_option(".durable")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]
Limit = Annotated[int, typer.Option(min=1, max=10_000, help="Show at most this many rows.")]

NoWait = Annotated[bool, typer.Option("--no-wait", help="Return once the change is admitted.")]
Timeout = Annotated[
    float, typer.Option("--timeout", min=1, max=86_400, help="Wait at most this many seconds.")
]
IdempotencyKey = Annotated[
    str | None,
    typer.Option(
        "--request-id", help="Idempotency key: a change sent again under it is made only once."
    ),
]
Reason = Annotated[str, typer.Option("--reason", help="The reason, for the audit.")]


def load_settings(state_dir: Path | None) -> Settings:
    """The settings of this process; the option overrides the environment variable."""
    return Settings.from_environment(os.environ, state_dir=state_dir)


def request_id_of(key: str | None, name: str) -> str:
    """The id of one request: a new one, or the person's key made unique to what it changes."""
    # Imported here: most commands send nothing.
    from pydantic import TypeAdapter, ValidationError

    from durable.signals.payloads import RequestId

    request_id = f"cli-{uuid.uuid4()}" if key is None else f"{key}/{name}"
    try:
        return TypeAdapter[str](RequestId).validate_python(request_id)
    except ValidationError:
        raise typer.BadParameter(
            f"got {key!r}; allowed: letters, digits and . _ : @ / -, up to 128 characters "
            f"including the /{name} that is added to it",
            param_hint="--request-id",
        ) from None
