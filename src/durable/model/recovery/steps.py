"""The steps of a recovery by name, and what they hand on until it rests."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated

from pydantic import AwareDatetime, Field

from durable.model.recovery.recoveries import RecoveryKey, RecoveryProgress
from durable.validation.text import shorten
from durable.validation.value import Value

SENTENCES_KEPT = 50


class RecoveryStep(StrEnum):
    """What a recovery does, in the order in which it usually does it."""

    EVIDENCE = "evidence"
    FENCE = "fence"
    DRAW = "draw"
    MOVE_OUT = "move out"
    MEASURE = "measure"
    HOLD = "hold"
    OPEN = "open"
    MOVE_BACK = "move back"
    CLOSE = "close"


class Returns(Value):
    """What was given back to a region and is not there yet, or was not given back yet."""

    count: Annotated[int, Field(ge=0)] = 0
    # The first of them, each in a sentence.
    left: Annotated[tuple[str, ...], Field(max_length=SENTENCES_KEPT)] = ()
    # What was given back, and of which some is elsewhere now: nobody brings it by waiting.
    strays: Annotated[int, Field(ge=0)] = 0
    strayed: Annotated[tuple[str, ...], Field(max_length=SENTENCES_KEPT)] = ()
    # When something was last given back.
    last_at: AwareDatetime | None = None

    def __add__(self, other: "Returns") -> "Returns":
        moments = [at for at in (self.last_at, other.last_at) if at is not None]
        return Returns(
            count=self.count + other.count,
            left=(self.left + other.left)[:SENTENCES_KEPT],
            strays=self.strays + other.strays,
            strayed=(self.strayed + other.strayed)[:SENTENCES_KEPT],
            last_at=max(moments, default=None),
        )


class RecoveryRound(Value):
    """What the steps since the last rest have learned; each gets it from the one before it."""

    taken: tuple[RecoveryStep, ...] = ()
    # Why the region takes no work yet, and when it is worth asking again.
    closed: str = ""
    closed_until: AwareDatetime | None = None
    # What is not back in the region.
    returns: Returns = Returns()
    # Which budget is still open, so that the recovery cannot end.
    open_budget: str = ""

    def after(self, step: RecoveryStep) -> "RecoveryRound":
        return self.model_copy(update={"taken": (*self.taken, step)})

    def found_closed(self, why: str, until: datetime) -> "RecoveryRound":
        return self.model_copy(update={"closed": shorten(why), "closed_until": until})


class RecoveryStepInput(Value):
    """Which loss, and what this round has learned so far."""

    key: RecoveryKey
    round: RecoveryRound = RecoveryRound()


class RecoveryStepOutcome(Value):
    """Which step comes next; with progress, it comes only after a rest."""

    # None: nothing is known of such a loss.
    next: RecoveryStep | None = None
    round: RecoveryRound = RecoveryRound()
    progress: RecoveryProgress | None = None
