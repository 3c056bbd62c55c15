"""A refusal: a code for programs and a sentence for people that says what to do next."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from durable.validation.text import Sentence
from durable.validation.value import Value


class RefusalCode(StrEnum):
    """Why something was refused; docs/errors.md has those that commands end with."""

    INVALID = "invalid"
    UNKNOWN_REGION = "unknown_region"
    UNKNOWN_ZONE = "unknown_zone"
    UNKNOWN_POOL = "unknown_pool"
    UNKNOWN_NODE = "unknown_node"
    UNKNOWN_TENANT = "unknown_tenant"
    UNKNOWN_WORKLOAD = "unknown_workload"
    UNKNOWN_PLACEMENT = "unknown_placement"
    UNKNOWN_GENERATION = "unknown_generation"
    UNKNOWN_SLOT = "unknown_slot"
    UNKNOWN_ATTEMPT = "unknown_attempt"
    UNKNOWN_TOKEN = "unknown_token"  # noqa: S105
    UNKNOWN_POLICY = "unknown_policy"
    UNKNOWN_BUDGET = "unknown_budget"
    UNKNOWN_DRAIN = "unknown_drain"
    UNKNOWN_VERSION = "unknown_version"
    UNKNOWN_OVERRIDE = "unknown_override"
    UNKNOWN_INCIDENT = "unknown_incident"
    UNKNOWN_OPERATOR = "unknown_operator"
    NOT_ALLOWED = "not_allowed"
    SIGNATURE_MISSING = "signature_missing"
    SIGNATURE_WRONG = "signature_wrong"
    SIGNATURE_OLD = "signature_old"
    KEY_CONFLICT = "key_conflict"
    FENCED_WRITER = "fenced_writer"
    REGION_FENCED = "region_fenced"
    REGION_OPEN = "region_open"
    REGION_LEASE_LAPSED = "region_lease_lapsed"
    CLOCK_JUMPED = "clock_jumped"
    CLAIMS_LEFT = "claims_left"
    SLOT_NOT_OWNED = "slot_not_owned"
    SLOT_TAKEN = "slot_taken"
    OLD_DIVISION = "old_division"
    RESIDENCY = "residency"
    TENANCY = "tenancy"
    REQUIRED_LABELS = "required_labels"
    TAINTED = "tainted"
    NEVER_FITS = "never_fits"
    NODE_NOT_READY = "node_not_ready"
    NODE_CORDONED = "node_cordoned"
    NODE_STALE = "node_stale"
    NODE_FULL = "node_full"
    DEVICES_TAKEN = "devices_taken"
    GRANT_EXHAUSTED = "grant_exhausted"
    HEADROOM_RESERVED = "headroom_reserved"
    BUDGET_CLOSED = "budget_closed"
    BUDGET_EXHAUSTED = "budget_exhausted"
    SLOT_NOT_MOVED = "slot_not_moved"
    POLICY_WITHDRAWN = "policy_withdrawn"
    POLICY_UNDER_WAY = "policy_under_way"
    OVERTAKEN = "overtaken"
    LEASE_EXPIRED = "lease_expired"
    LEASE_ACTIVE = "lease_active"
    WRONG_STATE = "wrong_state"
    DISRUPTION_ALLOWANCE = "disruption_allowance"
    ROLLED_BACK = "rolled_back"
    BEING_DRAINED = "being_drained"
    ALREADY_DRAINED = "already_drained"
    BEING_DELETED = "being_deleted"
    DELETED_SINCE = "deleted_since"
    CREATED_SINCE = "created_since"
    JOB_NOT_SCALED = "job_not_scaled"
    NO_PLACEMENTS = "no_placements"
    TIMED_OUT = "timed_out"
    NOT_BOUND = "not_bound"
    SIMULATED_NODE = "simulated_node"
    LOGS_ELSEWHERE = "logs_elsewhere"
    STOP_REQUESTED = "stop_requested"
    STILL_RUNNING = "still_running"
    FENCED_AGENT = "fenced_agent"
    NODES_HOSTED = "nodes_hosted"
    CAPACITY_IN_USE = "capacity_in_use"
    ILLEGAL_MOVE = "illegal_move"
    GRANT_IN_USE = "grant_in_use"
    OVER_HARD_QUOTA = "over_hard_quota"
    TRANSFER_CONFLICT = "transfer_conflict"
    AVOIDED = "avoided"
    HELD = "held"
    SELF_APPROVAL = "self_approval"
    TTL_TOO_LONG = "ttl_too_long"
    OVERRIDE_ENDED = "override_ended"
    DRAW_ENDED = "draw_ended"
    GATE_NOT_OVERRIDABLE = "gate_not_overridable"
    POLICY_FROZEN = "policy_frozen"
    BROKEN_CONSTRAINT = "broken_constraint"


# What may pass by itself: capacity, grants, leases and stops change while a placement waits.
# Everything else needs a person to change the request, the configuration or the writer.
WAITING_HELPS = frozenset(
    {
        RefusalCode.REGION_FENCED,
        RefusalCode.REGION_LEASE_LAPSED,
        RefusalCode.CLOCK_JUMPED,
        RefusalCode.CLAIMS_LEFT,
        RefusalCode.SLOT_TAKEN,
        RefusalCode.NODE_NOT_READY,
        RefusalCode.NODE_CORDONED,
        RefusalCode.NODE_STALE,
        RefusalCode.NODE_FULL,
        RefusalCode.DEVICES_TAKEN,
        RefusalCode.GRANT_EXHAUSTED,
        RefusalCode.HEADROOM_RESERVED,
        RefusalCode.BUDGET_EXHAUSTED,
        RefusalCode.LEASE_ACTIVE,
        RefusalCode.STILL_RUNNING,
        RefusalCode.CAPACITY_IN_USE,
        RefusalCode.GRANT_IN_USE,
        RefusalCode.DISRUPTION_ALLOWANCE,
        RefusalCode.AVOIDED,
        RefusalCode.HELD,
        RefusalCode.POLICY_FROZEN,
    }
)


class Refusal(Value):
    """One no, with its reason."""

    code: RefusalCode
    sentence: Annotated[Sentence, Field(min_length=1)]

    @property
    def waiting_helps(self) -> bool:
        return self.code in WAITING_HELPS

    def __str__(self) -> str:
        return f"{self.sentence} ({self.code})"


class RefusedError(Exception):
    """Raised where a single request, rather than one of a batch, is refused."""

    def __init__(self, code: RefusalCode, sentence: str) -> None:
        self.refusal = Refusal(code=code, sentence=sentence)
        super().__init__(self.refusal.sentence)
