"""One attempt of a placement: what was known, who was refused, who was liked, what came of it."""

from collections.abc import Sequence

from pydantic import AwareDatetime, ValidationError

from durable.model.ids import NodeId, PolicyRevision, RegionId, Slot
from durable.model.intents import Granted
from durable.model.pending import Pending
from durable.model.records import Decision, RecordedIntent
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.resources import Resources
from durable.scheduling.proposal import Assignment, Candidate, Proposal, Rejection
from durable.scheduling.waiting import told
from durable.validation.value import Value


class StepAccount(Value):
    """One step that was asked of the region for one slot, and its answer."""

    slot: Slot
    step: str
    taken: bool
    node: NodeId | None
    said: str
    version: int
    at: AwareDatetime


class AttemptAccount(Value):
    """A decision as it was recorded, with the intents that followed from it."""

    region: RegionId
    attempt: int
    decided_at: AwareDatetime
    policy_revision: PolicyRevision
    cache_version: int
    cache_age_seconds: float
    nodes: int
    feasible: int
    sampled: int | None
    # Such as `4,981 of 5,000 nodes: 3,000 insufficient gpu, 1,981 taint dedicated=billing`.
    filtered: str
    rejections: tuple[Rejection, ...]
    candidates: tuple[Candidate, ...]
    grant_before: Resources | None
    grant_after: Resources | None
    room_before: Resources | None
    placed: tuple[Assignment, ...]
    unplaced: tuple[Slot, ...]
    pending: Pending | None
    steps: tuple[StepAccount, ...]


def explain_attempt(
    decision: Decision, intents: Sequence[RecordedIntent], slot: Slot | None
) -> AttemptAccount:
    """The account of one decision; of one slot of it, if asked to."""
    proposal = _proposal(decision)
    evidence = proposal.evidence
    steps = [step for step in map(_step, intents) if step is not None]
    return AttemptAccount(
        region=decision.region,
        attempt=decision.attempt,
        decided_at=decision.decided_at,
        policy_revision=decision.policy_revision,
        cache_version=decision.cache_version,
        cache_age_seconds=round(evidence.cache_age_seconds, 3),
        nodes=evidence.nodes,
        feasible=evidence.feasible,
        sampled=evidence.sampled,
        filtered=told(evidence.rejections, evidence.nodes),
        rejections=evidence.rejections,
        candidates=evidence.candidates,
        grant_before=_amount(evidence.grant_before),
        grant_after=_amount(evidence.grant_after),
        room_before=_amount(evidence.room_before),
        placed=tuple(one for one in proposal.assignments if slot in (None, one.slot)),
        unplaced=tuple(one for one in proposal.unplaced if slot in (None, one)),
        pending=proposal.pending,
        steps=tuple(step for step in steps if slot in (None, step.slot)),
    )


def _proposal(decision: Decision) -> Proposal:
    try:
        return Proposal.model_validate(decision.evidence["proposal"])
    except (KeyError, ValidationError) as error:
        raise RefusedError(
            RefusalCode.UNKNOWN_VERSION,
            f"Attempt {decision.attempt} in {decision.region} was recorded by another release; "
            "ask that release.",
        ) from error


def _amount(amounts: tuple[int, int, int] | None) -> Resources | None:
    # What has shrunk below its use has less than nothing left.
    return None if amounts is None else Resources.of(*(max(0, amount) for amount in amounts))


def _step(intent: RecordedIntent) -> StepAccount | None:
    """Read from the key `tenant/workload/gN/sN/aN/step`."""
    parts = intent.key.split("/")
    if len(parts) != 6:
        return None
    outcome = intent.outcome
    is_taken = isinstance(outcome, Granted)
    return StepAccount(
        slot=int(parts[3].removeprefix("s")),
        step=parts[5],
        taken=is_taken,
        node=outcome.node if is_taken else None,
        said=f"token {outcome.token}" if is_taken else str(outcome.refusal),
        version=intent.version,
        at=intent.recorded_at,
    )
