"""One attempt at a placement: what was known, which nodes were rejected, and what came of it."""

from collections.abc import Sequence

from pydantic import AwareDatetime, ValidationError

from durable.model.ids import NodeId, PolicyRevision, RegionId, Slot, Token
from durable.model.placement.claims import SlotOnNode
from durable.model.placement.intents import Granted
from durable.model.placement.pending import Pending, show_rejections
from durable.model.placement.pending_reasons import Rejection
from durable.model.placement.records import Decision, RecordedIntent
from durable.model.refusal import Refusal, RefusalCode, RefusedError
from durable.model.resources import Resources
from durable.scheduling.request import Candidate, Proposal
from durable.validation.value import Value


class StepOutcome(Value):
    """One step of one slot, committed or refused by the region."""

    slot: Slot
    step: str
    # Why a slot was released.
    cause: str | None
    # Of a step that was committed.
    token: Token | None
    node: NodeId | None
    refusal: Refusal | None
    version: int
    at: AwareDatetime


class AttemptExplanation(Value):
    """A decision as it was recorded, with the steps that followed from it."""

    region: RegionId
    attempt: int
    decided_at: AwareDatetime
    # How often it was decided again with the same findings, and when last.
    repeats: int = 0
    repeated_at: AwareDatetime | None = None
    # By how much its deadline had raised its priority.
    urgency: int = 0
    policy_revision: PolicyRevision
    cache_version: int
    cache_age_seconds: float
    nodes: int
    feasible: int
    sampled: int | None
    # Such as `4,981 of 5,000 nodes: 3,000 insufficient gpu, 1,981 taint dedicated=billing`.
    rejected: str
    rejections: tuple[Rejection, ...]
    candidates: tuple[Candidate, ...]
    grant_before: Resources | None
    grant_after: Resources | None
    room_before: Resources | None
    placed: tuple[SlotOnNode, ...]
    unplaced: tuple[Slot, ...]
    pending: Pending | None
    steps: tuple[StepOutcome, ...]


def explain_attempt(
    decision: Decision, intents: Sequence[RecordedIntent], slot: Slot | None
) -> AttemptExplanation:
    """Explains one decision, or what of it concerns one slot."""
    proposal = _proposal(decision)
    evidence = proposal.evidence
    steps = [_step(intent) for intent in intents]
    recorded = AttemptExplanation.model_fields.keys() & Decision.model_fields.keys()
    weighed = ("nodes", "feasible", "sampled", "rejections", "candidates")
    return AttemptExplanation(
        **{name: getattr(decision, name) for name in recorded},
        **{name: getattr(evidence, name) for name in weighed},
        grant_before=_amount(evidence.grant_before),
        grant_after=_amount(evidence.grant_after),
        room_before=_amount(evidence.room_before),
        urgency=_urgency(decision),
        cache_age_seconds=round(evidence.cache_age_seconds, 3),
        rejected=show_rejections(evidence.rejections, evidence.nodes),
        placed=tuple(one for one in proposal.assignments if slot in (None, one.slot)),
        unplaced=tuple(one for one in proposal.unplaced if slot in (None, one)),
        pending=proposal.pending,
        steps=tuple(step for step in steps if slot in (None, step.slot)),
    )


def _urgency(decision: Decision) -> int:
    request = decision.evidence.get("request")
    found = request.get("urgency") if isinstance(request, dict) else None
    return found if isinstance(found, int) else 0


def _proposal(decision: Decision) -> Proposal:
    try:
        return Proposal.read(decision.evidence["proposal"])
    except (KeyError, ValidationError) as error:
        raise RefusedError(
            RefusalCode.UNKNOWN_VERSION,
            f"Attempt {decision.attempt} in {decision.region} was recorded by another release; "
            "explain it with that release.",
        ) from error


def _amount(amounts: tuple[int, int, int] | None) -> Resources | None:
    # A grant that was lowered below its use has less than nothing left.
    return None if amounts is None else Resources.clipped(amounts)


def _step(intent: RecordedIntent) -> StepOutcome:
    outcome = intent.outcome
    is_committed = isinstance(outcome, Granted)
    return StepOutcome(
        slot=intent.slot,
        step=intent.step,
        cause=intent.cause or None,
        token=outcome.token if is_committed else None,
        node=outcome.node if is_committed else None,
        refusal=None if is_committed else outcome.refusal,
        version=intent.version,
        at=intent.recorded_at,
    )
