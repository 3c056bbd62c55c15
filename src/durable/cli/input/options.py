"""The options that every command takes, and the settings that follow from them."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from durable.settings import Settings


def _directory(text: str) -> Path:
    # What an unset variable leaves behind must not mean the folder one happens to be in.
    if not text.strip():
        raise typer.BadParameter("it is empty; give a directory, or leave the option away")
    return Path(text)


def state_dir_option(default: str) -> Any:
    """The option as it is explained where nobody gives it and `default` is taken."""
    return typer.Option(
        "--state-dir",
        parser=_directory,
        metavar="DIRECTORY",
        help=f"Where the stack keeps everything (or DURABLE_STATE_DIR; default {default}).",
        show_default=False,
    )


StateDir = Annotated[Path | None, state_dir_option(".durable")]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else.")
]


def load_settings(state_dir: Path | None) -> Settings:
    """The settings of this process, where the option wins over the variable."""
    return Settings.from_environment(os.environ, state_dir=state_dir)
