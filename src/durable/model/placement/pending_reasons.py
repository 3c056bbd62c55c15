"""The reasons to wait: their codes, and the names and numbers that come with each of them."""

from collections.abc import Mapping
from enum import StrEnum

from pydantic import AwareDatetime, ConfigDict, Field, JsonValue

from durable.model.refusal import Refusal
from durable.model.resources import Resources
from durable.validation.text import Sentence
from durable.validation.value import Value

# So many rejections travel with a reason; the evidence of the decision has all of them.
MAX_REJECTIONS = 8


class PendingCode(StrEnum):
    QUEUED = "queued"
    CAPACITY = "capacity"
    NODES_UNAVAILABLE = "nodes_unavailable"
    SPREAD = "spread"
    GRANT = "grant"
    HEADROOM = "headroom"
    GANG = "gang"
    CONFLICTS = "conflicts"
    CRASHED = "crashed"
    PARALLELISM = "parallelism"
    HELD = "held"
    REGION_FENCED = "region_fenced"
    REGION_LEASE_LAPSED = "region_lease_lapsed"
    AUTHORITY_UNREACHABLE = "authority_unreachable"
    NEVER_FITS = "never_fits"
    REQUIREMENTS = "requirements"
    TAINTED = "tainted"
    NO_GRANT = "no_grant"


# A person has to change the workload, the fleet or the quota; waiting never helps.
NEEDS_A_CHANGE = frozenset(
    {
        PendingCode.NEVER_FITS,
        PendingCode.REQUIREMENTS,
        PendingCode.TAINTED,
        PendingCode.NO_GRANT,
    }
)


class Details(Value):
    """The parameters of a reason; a newer process may have written fields unknown to this one."""

    model_config = ConfigDict(extra="ignore")


class Rejection(Details):
    """How many nodes one filter rejected; a node counts under the first filter that did."""

    code: str
    nodes: int
    # The reason with its particular, such as `taint dedicated=billing`.
    words: str


class NoNode(Details):
    """No node takes what is left of a request; the code names what the closest nodes lack."""

    region: str
    workload: str
    # How many of how many slots; admission looks at the workload as a whole.
    unplaced: int | None = None
    slots: int | None = None
    nodes: int
    # Admission looks at one node of each kind, so it counts kinds.
    counts_kinds: bool = False
    # The most frequent rejections, and how many nodes were rejected in all.
    rejections: tuple[Rejection, ...] = Field(default=(), max_length=MAX_REJECTIONS)
    rejected: int = 0
    requested: Resources
    # By dimension, the most that any of the closest nodes has free, or has at all if it never fits.
    largest: Resources | None = None
    # What ended the last replica, where the wait is for a node on which it crashed.
    failure: str = ""


class Shortage(Details):
    """What is left of a grant, or beside the recovery headroom, is not enough for all slots."""

    region: str
    tenant: str
    left: Resources
    requested: Resources
    enough_for: int
    slots: int


class NoGrant(Details):
    region: str
    tenant: str


class Gang(Details):
    """Too few replicas of a gang could start together, so none does."""

    size: int
    slots: int
    # How many found a node, beside those that already run.
    placeable: int
    live: int = 0
    # Whether they were reserved and released again, because others took the rest of the nodes.
    was_reserved: bool = False
    # The code and parameters of what keeps the others waiting.
    because: Mapping[str, JsonValue] | None = None


class CrashBackoff(Details):
    """Replicas failed and are started again after a pause."""

    slots: int
    failure: str
    until: AwareDatetime | None = None


class HeldBack(Details):
    """A job runs as many slots at once as it may; the others wait until one has ended."""

    slots: int
    at_once: int


class Held(Details):
    """A person holds the workload; it ends by itself."""

    actor: str
    reason: str
    override: str
    ends_at: AwareDatetime


class Unreachable(Details):
    error: Sentence


class CommitRefused(Details):
    """The authority refused a step, in its own words."""

    refusal: Refusal
