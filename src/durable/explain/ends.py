"""How a slot of a job ended: it is done, it failed, or somebody stopped it before that."""

from enum import StrEnum

from pydantic import AwareDatetime

from durable.model.ids import NodeId, Slot
from durable.model.records import LastTry
from durable.model.states import ObservedState
from durable.validation.value import Value


class End(StrEnum):
    COMPLETED = "completed"
    FAILED = "failed"
    # Asked to, or because its node was lost: no word on the work itself.
    STOPPED = "stopped"


class EndAccount(Value):
    """The last try of one slot that runs no more, and the evidence of its end."""

    slot: Slot
    end: End
    node: NodeId
    attempt: int
    tries: int
    evidence: str
    at: AwareDatetime


def end_account(last: LastTry) -> EndAccount:
    return EndAccount(
        slot=last.slot,
        end=_end(last),
        node=last.node,
        attempt=last.attempt,
        tries=last.tries,
        evidence=last.stop_reason or last.evidence,
        at=last.at,
    )


def _end(last: LastTry) -> End:
    if last.stop_reason is not None:
        return End.STOPPED
    match last.state:
        case ObservedState.STOPPED:
            return End.COMPLETED
        case ObservedState.FAILED:
            return End.FAILED
        case _:
            return End.STOPPED
