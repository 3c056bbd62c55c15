"""What is never changed once written: decisions, audit events and policy revisions."""

from pydantic import AwareDatetime, JsonValue

from durable.model.ids import (
    ActorId,
    Generation,
    PolicyRevision,
    RegionId,
    TenantId,
    WorkloadName,
)
from durable.model.value import Value


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
