"""Why something waits: what time can mend, told apart from what somebody has to change."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from durable.model.value import Value


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
    HELD = "held"
    REGION_FENCED = "region_fenced"
    AUTHORITY_UNREACHABLE = "authority_unreachable"
    NEVER_FITS = "never_fits"
    REQUIREMENTS = "requirements"
    TAINTED = "tainted"
    OVER_HARD_QUOTA = "over_hard_quota"
    NO_GRANT = "no_grant"
    GIVEN_UP = "given_up"


# Somebody has to change the workload, the fleet or the quota, or resume; waiting never helps.
NEEDS_A_CHANGE = frozenset(
    {
        PendingCode.HELD,
        PendingCode.NEVER_FITS,
        PendingCode.REQUIREMENTS,
        PendingCode.TAINTED,
        PendingCode.OVER_HARD_QUOTA,
        PendingCode.NO_GRANT,
        PendingCode.GIVEN_UP,
    }
)


class Pending(Value):
    """One wait: its reason for programs, and a sentence that says what would end it."""

    code: PendingCode
    sentence: Annotated[str, Field(min_length=1, max_length=500)]

    @property
    def waiting_helps(self) -> bool:
        return self.code not in NEEDS_A_CHANGE

    def __str__(self) -> str:
        return f"{self.sentence} ({self.code})"
