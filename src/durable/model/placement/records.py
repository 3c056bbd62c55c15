"""What is never changed once written: decisions, outcomes, moves, audit events, policies."""

from pydantic import AwareDatetime, JsonValue

from durable.model.ids import (
    ActorId,
    Generation,
    NodeId,
    PolicyRevision,
    RegionId,
    Slot,
    TenantId,
    WorkloadName,
)
from durable.model.placement.intents import Outcome
from durable.model.states import ObservedState
from durable.validation.value import Value


class Decision(Value):
    """Everything that is needed to explain and replay one attempt."""

    region: RegionId
    tenant: TenantId
    workload: WorkloadName
    generation: Generation
    attempt: int
    policy_revision: PolicyRevision
    cache_version: int
    evidence: dict[str, JsonValue]
    decided_at: AwareDatetime
    # A digest of what was found, if nothing was placed: then the same again is only counted.
    findings: str | None = None
    # How often it was made again with the same findings, and when last.
    repeats: int = 0
    repeated_at: AwareDatetime | None = None


class AuditEvent(Value):
    """Who did what to which object, as one link of a chain."""

    chain: str
    sequence: int
    at: AwareDatetime
    actor: str
    database_role: str
    action: str
    object: str
    before: dict[str, JsonValue] | None
    after: dict[str, JsonValue] | None
    hash: str


class SchedulerPolicy(Value):
    """One revision of the policy; the next one is another number."""

    revision: PolicyRevision
    spec: dict[str, JsonValue]
    published_by: ActorId
    published_at: AwareDatetime


class RecordedIntent(Value):
    """What was requested of a region under one key (see `IntentKey`), and what it answered."""

    region: RegionId
    tenant: TenantId
    workload: WorkloadName
    generation: Generation
    slot: Slot
    attempt: int
    step: str
    cause: str
    ordinal: int
    outcome: Outcome
    version: int
    recorded_at: AwareDatetime


class LastTry(Value):
    """The last start of a slot whose claim has ended: what was seen of it, or why it stopped."""

    slot: Slot
    attempt: int
    node: NodeId
    # How often the slot was started in its generation.
    tries: int
    state: ObservedState | None
    evidence: str
    log_directory: str | None = None
    stop_reason: str | None
    at: AwareDatetime
