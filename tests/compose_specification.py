"""The part of the Compose Specification that docker-compose.yml uses, as strict types."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import yaml
from pydantic import BaseModel, ConfigDict, Field, model_validator

Name = Annotated[str, Field(pattern=r"^[a-zA-Z0-9._-]+$")]
Duration = Annotated[str, Field(pattern=r"^([0-9]+(us|ms|s|m|h))+$")]
Image = Annotated[str, Field(pattern=r"^[a-z0-9./_-]+:[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$")]
Port = Annotated[str, Field(pattern=r"^([0-9.]+:)?[0-9]{1,5}:[0-9]{1,5}(/(tcp|udp))?$")]
Mount = Annotated[str, Field(pattern=r"^(\./)?[a-zA-Z0-9._/-]+:/[a-zA-Z0-9._/-]*(:ro)?$")]
Restart = Annotated[str, Field(pattern=r"^(no|always|unless-stopped|on-failure(:[0-9]+)?)$")]
Condition = Literal["service_started", "service_healthy", "service_completed_successfully"]

# `$$`, `${NAME}`, `${NAME:-default}` and `${NAME:?error}`, each with its rarer form without colon.
_VARIABLE = re.compile(r"\$(?:(\$)|\{([A-Za-z_][A-Za-z0-9_]*)(?:(:?[-?])([^{}]*))?\})")


class Part(BaseModel):
    """A key that is not listed is refused; this is narrower than the specification, never wider."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Build(Part):
    context: str
    dockerfile: str


class Healthcheck(Part):
    test: list[str] = Field(min_length=2)
    interval: Duration
    timeout: Duration
    retries: int = Field(ge=1)
    start_period: Duration

    @model_validator(mode="after")
    def _names_how_it_is_run(self) -> "Healthcheck":
        assert self.test[0] in ("CMD", "CMD-SHELL")
        return self


class Dependency(Part):
    condition: Condition


class Logging(Part):
    driver: Literal["json-file"]
    options: dict[str, str]


class Service(Part):
    image: Image
    build: Build | None = None
    entrypoint: list[str] | None = None
    command: list[str] | None = None
    environment: dict[Name, str] = Field(default={})
    ports: list[Port] = Field(default=[])
    volumes: list[Mount] = Field(default=[])
    depends_on: dict[Name, Dependency] = Field(default={})
    healthcheck: Healthcheck | None = None
    restart: Restart
    stop_grace_period: Duration | None = None
    logging: Logging

    @property
    def runs_once(self) -> bool:
        return self.restart.startswith("on-failure")

    @property
    def mounts(self) -> dict[str, str]:
        """What is mounted, by its path in the container."""
        return {mount.split(":")[1]: mount.split(":")[0] for mount in self.volumes}


class Compose(Part):
    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")]
    services: dict[Name, Service] = Field(min_length=1)
    volumes: dict[Name, dict[str, str]]


def interpolate(text: str, environment: Mapping[str, str]) -> str:
    """The text as Compose would read it, or a ValueError where Compose would refuse it."""

    def value(match: re.Match[str]) -> str:
        escaped, name, operator, operand = match.groups()
        if escaped:
            return "$"
        given = environment.get(name)
        if given or (given is not None and not (operator or "").startswith(":")):
            return given
        if operator is None or operator.endswith("?"):
            raise ValueError(f"{name} is not set: {operand or 'no default and no sentence'}")
        return operand

    rest = _VARIABLE.sub("", text)
    if "$" in rest:
        raise ValueError(f"not an interpolation: {rest[rest.index('$') :][:40]}")
    return _VARIABLE.sub(value, text)


def read_compose(path: Path, environment: Mapping[str, str]) -> Compose:
    data = _interpolated(yaml.safe_load(path.read_text()), environment)
    extensions = [key for key in data if key.startswith("x-")]
    for key in extensions:
        del data[key]
    return Compose.model_validate(data)


def _interpolated(data: Any, environment: Mapping[str, str]) -> Any:
    if isinstance(data, dict):
        entries = cast(dict[str, Any], data).items()
        return {key: _interpolated(value, environment) for key, value in entries}
    if isinstance(data, list):
        return [_interpolated(item, environment) for item in cast(list[Any], data)]
    return interpolate(data, environment) if isinstance(data, str) else data
