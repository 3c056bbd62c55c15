"""Commands that send a message: made from its row of the registry, and from what is their own.

The row says which options there are, what they mean and whether a reason has to be given; the
answer is printed the same way everywhere. A command adds how its target is written, and what is
shown while it is followed.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from pydantic import ValidationError

from durable.cli.connections import audited_input, current_user, with_durable
from durable.cli.input.options import (
    AsJson,
    IdempotencyKey,
    NoWait,
    Parameters,
    Reason,
    StateDir,
    Timeout,
    flag,
    request_id_of,
    with_options,
)
from durable.cli.render.following import reassure_when_interrupted
from durable.cli.render.output import conclude, say
from durable.signals.payloads import OperatorRequest
from durable.signals.registry import REGISTRY, Message
from durable.validation.problems import problems_in
from durable.validation.quantities import show_duration

if TYPE_CHECKING:
    from durable.client import Durable


@dataclass(frozen=True)
class VerbInput:
    """What a person gave on the command line."""

    # What the message is for, as the command reads it.
    target: Any
    # Of the payload, with the reason and the request id.
    fields: dict[str, Any]
    # Of the command alone.
    own: dict[str, Any]
    # How long it is followed; None if it is not.
    timeout_seconds: float | None
    as_json: bool

    @property
    def patience_seconds(self) -> float | None:
        """How long the answer itself is waited for."""
        return None if self.timeout_seconds is None else min(300.0, self.timeout_seconds)


def print_answer(given: VerbInput, answer: Any, outcome: Any = None) -> None:
    """One sentence, or one object."""
    conclude(given.as_json, {"answer": answer}, say(answer))


def _as_given(target: Any) -> Any:
    return target


@dataclass(frozen=True)
class MessageCommand:
    """One command that sends one message, and perhaps follows what comes of it."""

    # As it is written after `durable`.
    path: str
    message: Message
    target: Parameters
    send: Callable[["Durable", VerbInput], Awaitable[Any]]
    parse: Callable[..., Any] = _as_given
    # Its help, where the message's own sentence is not enough.
    sentence: str = ""
    # Options beside those of the payload.
    own: Parameters = field(default_factory=dict[str, tuple[Any, ...]])
    # Shows what comes of the answer until that has ended, or the given time is over; without a
    # time, what is known at once.
    follow: Callable[["Durable", VerbInput, Any], Awaitable[Any]] | None = None
    # Prints the answer and the outcome, which is None if it was not followed.
    conclude: Callable[[VerbInput, Any, Any], None] = print_answer
    follows_seconds: float = 3_600.0
    # What continues when the command is interrupted, and where to see it.
    continues: tuple[str, str] = ("change", "durable get workloads")

    @property
    def name(self) -> str:
        return self.path.rpartition(" ")[2]

    def add_to(self, app: typer.Typer) -> None:
        app.command(self.name)(self.function())

    def function(self) -> Callable[..., None]:
        """What typer makes a command of: it reads a signature and a docstring."""

        def command(**given: Any) -> None:
            self._run(given)

        fields = payload_options(self.message.payload)
        # A target's own spelling of a field goes before the payload's.
        options = {**self.target, **fields, **self.target, **self.own}
        if self.follow is not None:
            options |= {"no_wait": (NoWait, False), "timeout": (Timeout, self.follows_seconds)}
        reason = () if self.message.needs_reason else (f"durable {self.path}",)
        options |= {
            "request_id": (IdempotencyKey, None),
            "reason": (Reason, *reason),
            "state_dir": (StateDir, None),
            "as_json": (AsJson, False),
        }
        command.__doc__ = self.sentence or self.message.sentence
        return with_options(command, options)

    def _run(self, given: dict[str, Any]) -> None:
        state_dir: Path | None = given.pop("state_dir")
        with audited_input(state_dir, self.path):
            read = self._read(given)

        async def send(durable: "Durable") -> tuple[Any, Any]:
            answer = await self.send(durable, read)
            if self.follow is None:
                return answer, None
            return answer, await self.follow(durable, read, answer)

        with reassure_when_interrupted(*self.continues):
            answer, outcome = with_durable(state_dir, send, within_seconds=read.patience_seconds)
        self.conclude(read, answer, outcome)

    def _read(self, given: Mapping[str, Any]) -> VerbInput:
        who = {"reason": given["reason"], "request_id": request_id_of(given["request_id"])}
        fields = {
            # What may be repeated counts once, whatever its order.
            name: sorted(set(cast(list[int], value))) if isinstance(value, list) else value
            for name in payload_options(self.message.payload)
            if (value := given[name]) is not None
        }
        return VerbInput(
            target=self.parse(*(given[name] for name in self.target)),
            fields={**check_fields(self.message, fields), **who},
            own={name: given[name] for name in self.own},
            timeout_seconds=None if given.get("no_wait", True) else given["timeout"],
            as_json=given["as_json"],
        )


def message(to: str, name: str) -> Message:
    """The row of one message."""
    return next(one for one in REGISTRY if (one.to, one.name) == (to, name))


def payload_options(payload: type[Any]) -> dict[str, tuple[Any, ...]]:
    """The fields of a payload that people set: those with a description, as options."""
    schema = payload.model_json_schema()["properties"]
    return {
        name: _option(name, schema[name], one.default if not one.is_required() else ...)
        for name, one in payload.model_fields.items()
        if one.description is not None and name not in OperatorRequest.model_fields
    }


def _option(name: str, schema: Mapping[str, Any], default: Any) -> tuple[Any, ...]:
    """An annotation for typer and a default, by the field's JSON schema."""
    shape = {**schema, **schema.get("anyOf", ({},))[0]}
    option, sentence = f"--{name.replace('_', '-')}", schema["description"]
    match shape["type"]:
        case "boolean":
            return Annotated[bool, flag(option, help=sentence)], False
        case "array":
            one = shape["items"]
            limits = {"min": one["minimum"], "max": one["maximum"]}
            repeated = typer.Option(option.removesuffix("s"), help=sentence, **limits)
            return Annotated[list[int] | None, repeated], None
        case "integer":
            limits = {"min": shape["minimum"], "max": shape["maximum"]}
            return Annotated[int | None, typer.Option(option, help=sentence, **limits)], default
        case _:
            given = show_duration(default) if isinstance(default, timedelta) else default
            text = str if default is ... else str | None
            one = Annotated[text, typer.Option(option, help=sentence)]
            return (one,) if default is ... else (one, given)


def check_fields(message: Message, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields as the payload reads them, or a usage error that names the option."""
    who = {"actor": current_user(), "reason": "checked", "request_id": "checked"}
    try:
        payload = message.payload.model_validate({**fields, **who})
    except ValidationError as error:
        problem = problems_in(error, message.payload)[0]
        option = f"--{str(problem.location[0]).replace('_', '-')}" if problem.location else None
        raise typer.BadParameter(problem.message, param_hint=option) from None
    return {name: getattr(payload, name) for name in fields}
