"""Options and names that several commands take."""

import inspect
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from pydantic import ValidationError

from durable.model.ids import RegionId, TenantId, WorkloadName
from durable.settings import Settings
from durable.validation.text import read_plain_text

EXAMPLE = "risk/risk-api"

WorkloadArgument = Annotated[
    str, typer.Argument(metavar="TENANT/NAME", help=f"The workload, such as {EXAMPLE}.")
]
TenantOption = Annotated[str | None, typer.Option("--tenant", help="Only this tenant.")]
RegionOption = Annotated[str | None, typer.Option("--region", help="Only this region.")]

Given = TypeVar("Given")
Parsed = TypeVar("Parsed")


def parse_option(option: str, parse: Callable[[Given], Parsed], given: Given) -> Parsed:
    """The parsed value, or a usage error that names the option."""
    try:
        return parse(given)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]["msg"].removeprefix("Value error, ")
        raise typer.BadParameter(problem, param_hint=option) from None
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


def parse_workload(text: str) -> tuple[TenantId, WorkloadName]:
    """Splits `TENANT/NAME` into its two names."""
    tenant, slash, name = text.partition("/")
    if not slash or "/" in name:
        raise typer.BadParameter(f"got {text!r}; write it as TENANT/NAME, like {EXAMPLE}")
    try:
        return TenantId(tenant), WorkloadName(name)
    except ValueError as error:
        raise typer.BadParameter(f"{error}; write it as TENANT/NAME") from None


def parse_tenant(text: str | None) -> TenantId | None:
    return None if text is None else parse_option("--tenant", TenantId, text)


def parse_region(text: str | None) -> RegionId | None:
    return None if text is None else parse_option("--region", RegionId, text)


def path_option(*names: str, help: str) -> Any:
    """A file or folder; no text is none of them, where a path would be the current folder."""
    return typer.Option(*names, help=help, parser=_read_path, metavar="PATH")


def _read_path(text: str | Path) -> Path:
    if not str(text).strip():
        raise typer.BadParameter("it is empty; name a file, or `.` for the current folder")
    return Path(text)


# What a command takes, by name: its annotation and, unless it has to be given, its default.
Parameters = Mapping[str, tuple[Any, ...]]


def with_options(command: Callable[..., None], options: Parameters) -> Callable[..., None]:
    """The command as typer reads it: by its signature."""
    command.__annotations__ = {name: option[0] for name, option in options.items()}
    empty, keyword = inspect.Parameter.empty, inspect.Parameter.KEYWORD_ONLY
    parameters = [
        inspect.Parameter(
            name, keyword, annotation=option[0], default=option[1] if option[1:] else empty
        )
        for name, option in options.items()
    ]
    command.__dict__["__signature__"] = inspect.Signature(parameters)
    return command


def parse_pairs(
    option: str,
    texts: Sequence[str] | None,
    example: str,
    read: Callable[[str], Parsed],
    value: str = "VALUE",
) -> dict[str, Parsed]:
    """`NAME=VALUE` of a repeatable option, by name."""
    pairs: dict[str, Parsed] = {}
    for text in texts or ():
        name, _, given = text.partition("=")
        try:
            if not name or not given:
                raise ValueError(text)
            pairs[name] = read(given)
        except ValueError:
            raise typer.BadParameter(
                f"got {text!r}; allowed: NAME={value}, such as {example}", param_hint=option
            ) from None
    return pairs


def _directory(text: str) -> Path:
    # What an unset shell variable leaves behind must not mean the current directory.
    if not text.strip():
        raise typer.BadParameter("it is empty; give a directory, or omit the option")
    return Path(text)


def flag(*names: str, help: str) -> Any:
    """An option that takes no value, so that its help names none."""
    return typer.Option(*names, metavar="", help=help)


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
AsJson = Annotated[bool, flag("--json", help="Print one JSON object on stdout.")]
Limit = Annotated[int, typer.Option(min=1, max=10_000, help="Show at most this many rows.")]

NoWait = Annotated[bool, flag("--no-wait", help="Return once the change is admitted.")]
Timeout = Annotated[
    float, typer.Option("--timeout", min=1, max=86_400, help="Wait at most this many seconds.")
]
IdempotencyKey = Annotated[
    str | None,
    typer.Option(
        "--request-id", help="Idempotency key: a change sent again under it is made only once."
    ),
]


def _plain_text(text: str) -> str:
    return parse_option("--reason", read_plain_text, text)


Reason = Annotated[
    str, typer.Option("--reason", callback=_plain_text, help="The reason, for the audit.")
]


def load_settings(state_dir: Path | None) -> Settings:
    """The settings of this process; the option overrides the environment variable."""
    return Settings.from_environment(os.environ, state_dir=state_dir)


def request_id_of(key: str | None) -> str:
    """The id of a request: the person's own, which counts for each workload, or a new one."""
    # Imported here: most commands send nothing.
    from pydantic import TypeAdapter, ValidationError

    from durable.signals.payloads import RequestId

    if key is None:
        return f"cli-{uuid.uuid4()}"
    try:
        return TypeAdapter[str](RequestId).validate_python(key)
    except ValidationError:
        raise typer.BadParameter(
            f"got {key!r}; allowed: letters, digits and . _ : @ / -, up to 128 characters",
            param_hint="--request-id",
        ) from None
