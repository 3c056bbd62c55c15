"""What one replica runs: the command, its environment, and the probe that says it is ready."""

from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from durable.validation.quantities import Duration
from durable.validation.text import PlainText
from durable.validation.value import Value

MAX_COMMAND_PARTS = 256
AUTO = "auto"

# `auto` is a free port of the node, which the process finds in its environment as PORT.
Port = Annotated[int, Field(ge=1, le=65_535)] | Literal["auto"]
EnvironmentName = Annotated[str, Field(pattern="^[A-Za-z_][A-Za-z0-9_]{0,127}$")]
EnvironmentValue = Annotated[str, Field(max_length=32_768, pattern="^[^\\x00]*$")]
Argument = Annotated[str, Field(max_length=32_768, pattern="^[^\\x00]*$")]


class TcpProbe(Value):
    """Ready when the port takes a connection."""

    port: Port


class HttpProbe(Value):
    """Ready when GET answers 2xx or 3xx."""

    port: Port
    path: Annotated[str, Field(pattern="^/[^\\s\\x00]{0,1023}$")] = "/"


class CommandProbe(Value):
    """Ready when the command ends with 0."""

    command: Annotated[tuple[Argument, ...], Field(min_length=1, max_length=MAX_COMMAND_PARTS)]


class ReadinessProbe(Value):
    """One kind of probe, how often it runs and how long it may take."""

    tcp: TcpProbe | None = None
    http: HttpProbe | None = None
    command: CommandProbe | None = None
    period: Duration = timedelta(seconds=1)
    timeout: Duration = timedelta(seconds=2)

    @model_validator(mode="after")
    def _have_one_probe(self) -> Self:
        if sum(probe is not None for probe in (self.tcp, self.http, self.command)) != 1:
            raise ValueError("allowed: exactly one of tcp, http and command")
        return self


class Limits(Value):
    """What the operating system holds every process of a replica to."""

    open_files: Annotated[int, Field(ge=3, le=1_048_576)] | None = None
    address_space_mib: Annotated[int, Field(ge=1, le=2**31)] | None = None
    cpu_seconds: Annotated[int, Field(ge=1, le=2**31)] | None = None


class OnDisconnect(StrEnum):
    """What a node does with a replica when it cannot renew its own lease."""

    STOP = "stop"
    KEEP = "keep"


class OnReconnect(StrEnum):
    """Which copy stays when a lost region gets its work back: the moved one, or the one there."""

    REPLACEMENT = "replacement"
    ORIGINAL = "original"


class Run(Value):
    """The command of a replica; a simulated node only pretends to run it."""

    command: Annotated[tuple[Argument, ...], Field(max_length=MAX_COMMAND_PARTS)] = ()
    environment: Annotated[Mapping[EnvironmentName, EnvironmentValue], Field(max_length=256)] = (
        Field(default={})
    )
    working_directory: Annotated[str, Field(pattern="^/[^\\x00]{0,1023}$")] | None = None
    image: PlainText | None = None
    readiness: ReadinessProbe | None = None
    limits: Limits = Limits()
    stop_grace: Duration = timedelta(seconds=10)
    on_disconnect: OnDisconnect = OnDisconnect.KEEP
    on_reconnect: OnReconnect = OnReconnect.REPLACEMENT

    @model_validator(mode="after")
    def _keep_an_original(self) -> Self:
        is_stopped = self.on_disconnect is OnDisconnect.STOP
        if is_stopped and self.on_reconnect is OnReconnect.ORIGINAL:
            raise ValueError(
                "on_reconnect: got original beside on_disconnect: stop, which leaves no original; "
                "allowed: on_disconnect: keep, or omit on_reconnect"
            )
        return self
