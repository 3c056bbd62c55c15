"""Every setting of durable, read from the environment and validated in one place."""

from __future__ import annotations

import difflib
import getpass
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    FilePath,
    Json,
    SecretStr,
    StringConstraints,
    ValidationError,
    model_validator,
)

from durable.state_dir.record import StackError, is_running, read_record, why_nothing_runs

PREFIX = "DURABLE_"
# An agent gives these to its replicas, which may run our own commands.
_OF_REPLICAS = frozenset(
    {
        "region", "node", "tenant", "workload", "generation", "slot", "token", "devices", "replica",
    }
)  # fmt: skip

PostgresUrl = Annotated[str, StringConstraints(pattern=r"^postgresql://[^\s/]+/[^\s/?]+(\?\S*)?$")]
RegionNames = Annotated[
    str, StringConstraints(pattern=r"^([a-z0-9][a-z0-9-]*(,[a-z0-9][a-z0-9-]*)*)?$")
]
HostAndPort = Annotated[
    str, StringConstraints(pattern=r"^(\[[0-9a-fA-F:]+\]|[^\s/:]+):[1-9][0-9]{0,4}$")
]
WebUrl = Annotated[str, StringConstraints(pattern=r"^https?://[^\s/]+\S*$")]
ActorName = Annotated[
    str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9._@:/-]*[a-z0-9])?$", max_length=128)
]
Namespace = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,254}$")]


class SettingsError(Exception):
    """A setting is invalid or missing; the text is the sentence to show."""


class Settings(BaseModel):
    """Where the state, the authority and Temporal are; an unset address means the local stack's.

    The description of a field says what is allowed; it is shown when a value is not.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    state_dir: Path = Field(default=Path(".durable"), description="a directory")
    database_url: PostgresUrl | None = Field(
        default=None,
        repr=False,
        description="a URL like postgresql://user:password@host:5432/database",
    )
    regional_database_urls: Json[dict[str, PostgresUrl]] = Field(
        default={},
        repr=False,
        description='a JSON object like {"us-east": "postgresql://user:password@host/database"}',
    )
    database_per_region: RegionNames = Field(
        default="", description="names of regions like us-west,eu-central"
    )
    temporal_address: HostAndPort | None = Field(
        default=None, description="an address like host:7233"
    )
    temporal_namespace: Namespace = Field(
        default="durable", description="a name of letters, digits, '.', '_' and '-'"
    )
    temporal_tls: bool = Field(default=False, description="true or false")
    temporal_tls_ca: FilePath | None = Field(default=None, description="a file that exists")
    temporal_tls_cert: FilePath | None = Field(default=None, description="a file that exists")
    temporal_tls_key: FilePath | None = Field(default=None, description="a file that exists")
    temporal_api_key: SecretStr | None = Field(default=None, description="an API key")
    temporal_ui_url: WebUrl | None = Field(default=None, description="a URL like http://host:8233")
    actor: ActorName | None = Field(
        default=None, description="a name like person:alice or service:deploy"
    )
    keys_dir: Path | None = Field(default=None, description="a directory")
    region_lease_seconds: int = Field(
        default=120, ge=5, le=3600, description="a number of seconds from 5 to 3600"
    )
    debug: bool = Field(default=False, description="true or false")
    failpoints: str | None = Field(
        default=None, description="a list like after_reserve=kill:/tmp/once (for tests only)"
    )

    @classmethod
    def from_environment(
        cls, environment: Mapping[str, str], *, state_dir: Path | None = None
    ) -> Self:
        """Read the variables; a state directory given by the caller overrides the variable."""
        given = {
            name.removeprefix(PREFIX).lower(): value
            for name, value in environment.items()
            if name.startswith(PREFIX) and value.strip()
        }
        given = {name: value for name, value in given.items() if name not in _OF_REPLICAS}
        _refuse_unknown(given)
        if state_dir is not None:
            given["state_dir"] = str(state_dir)
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            raise SettingsError(_sentence(error, given)) from None

    def require_database_url(self) -> str:
        """The authority's database: the configured one, else the running stack's."""
        return self.database_url or self._of_stack("database_url")

    def known_regional_urls(self) -> Mapping[str, str]:
        """The regions' own databases: the configured ones, else the running stack's."""
        if self.regional_database_urls or self.database_url is not None:
            return self.regional_database_urls
        record = read_record(self.state_dir) if is_running(self.state_dir) else None
        return {} if record is None else record.regional_database_urls

    def require_temporal_address(self) -> str:
        """Temporal's frontend: the configured one, else the running stack's."""
        return self.temporal_address or self._of_stack("temporal_address")

    @property
    def acting_as(self) -> str:
        """Who asks for changes: the configured actor, else the user of this terminal."""
        if self.actor is not None:
            return self.actor
        name = re.sub("[^a-z0-9]+", "-", getpass.getuser().lower()).strip("-")
        return f"person:{name or 'unknown'}"

    @property
    def own_keys(self) -> Path:
        """Where the keys that this user signs with are."""
        return self.keys_dir or Path.home() / ".config" / "durable" / "keys"

    @model_validator(mode="after")
    def _require_tls_for_secrets(self) -> Self:
        needs_tls = ("temporal_api_key", "temporal_tls_ca", "temporal_tls_cert", "temporal_tls_key")
        for field in needs_tls:
            if getattr(self, field) is not None and not self.temporal_tls:
                raise ValueError(f"{variable(field)} requires {variable('temporal_tls')}=true")
        if (self.temporal_tls_cert is None) != (self.temporal_tls_key is None):
            pair = f"{variable('temporal_tls_cert')} and {variable('temporal_tls_key')}"
            raise ValueError(f"{pair} must be set together")
        return self

    def _of_stack(self, field: str) -> str:
        if not is_running(self.state_dir):
            why = why_nothing_runs(self.state_dir)
            raise StackError(f"{why} Or set {variable(field)} to use another server.")
        address: str | None = getattr(read_record(self.state_dir), field, None)
        if address is None:
            raise StackError(
                f"The stack in {self.state_dir} has not started this part: "
                f"see `durable status`, or set {variable(field)}."
            )
        return address


def variable(field: str) -> str:
    return PREFIX + field.upper()


def _refuse_unknown(given: Mapping[str, str]) -> None:
    known = list(Settings.model_fields)
    for field in sorted(given.keys() - set(known)):
        close = difflib.get_close_matches(field, known, n=1)
        hint = f" (did you mean {variable(close[0])}?)" if close else ""
        raise SettingsError(
            f"{variable(field)} is not a setting{hint}: "
            f"the settings are {', '.join(variable(name) for name in known)}."
        )


def _sentence(error: ValidationError, given: Mapping[str, str]) -> str:
    problem = error.errors(include_url=False)[0]
    if not problem["loc"]:
        return problem["msg"].removeprefix("Value error, ") + "."
    field = str(problem["loc"][0])
    return f"{variable(field)} is {_shown(field, given)}, which is not {_allowed(field)}."


def _shown(field: str, given: Mapping[str, str]) -> str:
    # A malformed URL may hold its password anywhere, so no part of it is safe to show.
    secret = field in ("database_url", "regional_database_urls", "temporal_api_key")
    return "set to a value (not shown: it may hold a password)" if secret else repr(given[field])


def _allowed(field: str) -> str:
    info: Any = Settings.model_fields[field]
    return info.description
