"""What a writer requests of a region, and the outcome.

An intent is idempotent by its key: sent again after a timeout, a crash or a replay, it returns the
outcome that was recorded; the same key with another payload is a conflict.
"""

import hashlib
import json
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from typing import Annotated, ClassVar, Literal, NamedTuple

from pydantic import Field, TypeAdapter, field_validator

from durable.model.fleet.labels import Labels
from durable.model.ids import (
    ActorId,
    BudgetId,
    DeviceId,
    Generation,
    IncidentId,
    NodeId,
    PolicyRevision,
    RegionId,
    Slot,
    TenantId,
    Token,
    WorkloadName,
    ZoneId,
)
from durable.model.refusal import Refusal
from durable.model.resources import Resources
from durable.validation.text import PlainText
from durable.validation.value import Value

Ordinal = Annotated[int, Field(strict=True, ge=1, le=1_000_000)]


class IntentKey(NamedTuple):
    """The business key of an intent in its region; run ids would change on reset.

    Its parts are columns of the authority; only sentences for people use it as text.
    """

    tenant: TenantId
    workload: WorkloadName
    generation: Generation
    slot: Slot
    attempt: int
    step: str
    # Why a release was safe, empty for every other step: a release for one cause must not use up
    # the key of a release for another.
    cause: str
    ordinal: int

    def __str__(self) -> str:
        step = f"{self.step}-{self.cause}" if self.cause else self.step
        again = f".{self.ordinal}" if self.ordinal > 1 else ""
        return (
            f"{self.tenant}/{self.workload}/g{self.generation}/s{self.slot}/a{self.attempt}/"
            f"{step}{again}"
        )


class Intent(Value):
    """One step for one attempt at one slot."""

    # The sender, its epoch and its reason may differ between sends; the request may not.
    circumstances: ClassVar[frozenset[str]] = frozenset({"epoch", "actor", "evidence"})
    step: ClassVar[str]

    region: RegionId
    tenant: TenantId
    workload: WorkloadName
    generation: Generation
    slot: Slot
    attempt: Ordinal
    # A step that was refused may be sent again as the next ordinal of the same attempt.
    ordinal: Ordinal = 1
    epoch: Annotated[int, Field(strict=True, ge=1)]
    actor: ActorId
    evidence: PlainText

    @cached_property
    def key(self) -> IntentKey:
        return IntentKey(
            self.tenant,
            self.workload,
            self.generation,
            self.slot,
            self.attempt,
            self.step,
            self._cause(),
            self.ordinal,
        )

    def _cause(self) -> str:
        return ""

    @cached_property
    def payload_sha256(self) -> bytes:
        # Defaults are left out, so that a field added later changes no hash in flight.
        payload = self.model_dump(
            mode="json", exclude=set(self.circumstances), exclude_defaults=True
        )
        return hashlib.sha256(json.dumps(payload, sort_keys=True).encode()).digest()


class Requirements(Value):
    """Where work may run at all; empty means anywhere."""

    regions: tuple[RegionId, ...] = ()
    zones: tuple[ZoneId, ...] = ()
    labels: Labels = Field(default={})
    dedicated: bool = False

    @field_validator("regions", "zones")
    @classmethod
    def _in_one_order(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        """Equal requirements are equal values, in whatever order they were written."""
        return tuple(sorted(set(names)))


class Draw(Value):
    """A claim on capacity that is kept for recovery, by the incident that opened it."""

    budget: BudgetId
    incident: IncidentId


class Reserve(Intent):
    step: ClassVar[str] = "reserve"

    node: NodeId
    resources: Resources
    # What the claim keeps; others are compared with it when they want its place.
    priority: Annotated[int, Field(strict=True, ge=0, le=1000)]
    # By a deadline or an override: its turn is earlier, and the claim is no more than it was.
    raised_by: Annotated[int, Field(strict=True, ge=0, le=1000)] = 0
    policy_revision: PolicyRevision
    lease_ttl_seconds: Annotated[int, Field(strict=True, ge=1, le=3600)]
    requirements: Requirements = Requirements()
    draw: Draw | None = None


class Bind(Intent):
    step: ClassVar[str] = "bind"

    token: Token


class Start(Intent):
    step: ClassVar[str] = "start"

    token: Token


class Evict(Intent):
    """Tells the node to stop it; the claim is live until a release shows that it has stopped."""

    step: ClassVar[str] = "evict"

    token: Token
    # A person takes the harm upon them: it is stopped although too few others serve.
    is_forced: bool = False


class ReleaseCause(StrEnum):
    """What makes it safe to reuse what is released; the authority checks it."""

    WITHDRAWN = "withdrawn"  # it was never started
    STOPPED = "stopped"  # its agent reported the end of the process
    NODE_LOST = "node_lost"  # its node's lease has expired
    REGION_FENCED = "region_fenced"  # its region was fenced, its slot moves elsewhere


class Release(Intent):
    step: ClassVar[str] = "release"

    token: Token
    cause: ReleaseCause

    def _cause(self) -> str:
        return self.cause.value


class Expire(Intent):
    step: ClassVar[str] = "expire"

    token: Token


AnyIntent = Reserve | Bind | Start | Evict | Release | Expire


class Granted(Value):
    """The step was taken, at this version of the region."""

    kind: Literal["granted"] = "granted"
    token: Token
    node: NodeId
    version: int
    devices: tuple[DeviceId, ...] = ()
    expires_at: datetime | None = None


class Refused(Value):
    """The step was not taken and nothing changed."""

    kind: Literal["refused"] = "refused"
    refusal: Refusal


Outcome = Annotated[Granted | Refused, Field(discriminator="kind")]
OUTCOME: TypeAdapter[Granted | Refused] = TypeAdapter(Outcome)
