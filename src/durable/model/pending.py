"""Why something waits: what time can mend, told apart from what somebody has to change."""

from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field

from durable.validation.value import Value


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


_CODES = frozenset(PendingCode)
LONGEST = 500

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
    sentence: Annotated[str, Field(min_length=1, max_length=LONGEST)]

    @property
    def waiting_helps(self) -> bool:
        return self.code not in NEEDS_A_CHANGE

    def __str__(self) -> str:
        return f"{self.sentence} ({self.code})"

    @classmethod
    def said(cls, words: str) -> Self | None:
        """The wait of which these words tell, if they are one's own; the other way of `str`."""
        sentence, _, code = words.removesuffix(")").rpartition(" (")
        if not words.endswith(")") or code not in _CODES or not sentence:
            return None
        return cls(code=PendingCode(code), sentence=sentence[:LONGEST])
