"""A drain begins, marks and ends: each one transaction of its region, once per request id."""

from dataclasses import dataclass

from sqlalchemy import text

from durable.authority.audit import chain as audit
from durable.authority.db.engine import AsyncConnection
from durable.authority.db.transaction import regional_transaction
from durable.authority.drains.rows import drain_of, find_drain, refuse_while_drained
from durable.authority.fleet.cordons import write_cordons
from durable.authority.fleet.node_targets import FoundNode, find_nodes
from durable.authority.fleet.regions import lock_region
from durable.authority.operators.ledger import LedgerSide, RecordedRequest, RequestLedger
from durable.authority.reads.claims import ClaimFilter
from durable.authority.slots.marks import Cause, CauseKind, Share, mark_claims, unmark_claims
from durable.model.fleet.drain import Drain, DrainOrder, DrainState
from durable.model.ids import ActorId, NodeId, RegionId
from durable.model.operators.rights import OperatorMessage
from durable.model.refusal import RefusalCode, RefusedError
from durable.signals.names import drain_id
from durable.validation.text import shorten

ROLE = "durable_drain"
CANCELLED = "Cancelled: what has not left stays, and nodes that it cordoned take work again."

_COUNT = text("""
    SELECT count(*) FROM regional.reservations
     WHERE region = :region AND node = ANY(:nodes) AND freed_version IS NULL
""")

_BEGIN = text("""
    INSERT INTO regional.drains
           (region, request, kind, name, actor, reason, wait_for_jobs, nodes, cordoned, replicas,
            started_at, deadline_at)
    SELECT :region, :request, :kind, :name, :actor, :reason, :wait_for_jobs, :nodes, :cordoned,
           :replicas, clock.now, clock.now + make_interval(secs => :seconds)
      FROM (SELECT clock_timestamp() AS now) AS clock
    RETURNING *
""")

_END = text("""
    UPDATE regional.drains SET state = :state, ended_at = clock_timestamp(), outcome = :outcome
     WHERE region = :region AND request = :request AND ended_at IS NULL
    RETURNING *
""")

# A late attempt waits for the end of the drain that is under way, and then marks nothing.
_RUNS = text("""
    SELECT FROM regional.drains
     WHERE region = :region AND request = :request AND ended_at IS NULL FOR SHARE
""")


@dataclass(frozen=True)
class EndedDrain:
    """How a drain ended, and the shares of which claims need not be replaced any more."""

    drain: Drain
    unmarked: frozenset[Share] = frozenset()
    # What the message that cancels it is answered; empty if the drain had ended before.
    answer: str = ""


@regional_transaction(ROLE, "begin to drain {order.target}")
async def begin_drain(connection: AsyncConnection, region: RegionId, order: DrainOrder) -> Drain:
    """Cordons the nodes and records the drain; under a known request id, what became of it."""
    await lock_region(connection, region)
    ledger = await RequestLedger.read(connection, [order.message], LedgerSide.REGIONAL)
    known = await find_drain(connection, region, order.request)
    if ledger.recall(order.message) is not None:
        assert known is not None, "a drain keeps its row"
        return known
    if known is not None:
        raise _of_other_nodes(known)
    found = await find_nodes(connection, order.target)
    nodes = [one.node for one in found]
    await refuse_while_drained(connection, region, nodes)
    named = {"region": region, "nodes": list(map(str, nodes))}
    replicas = (await connection.execute(_COUNT, named)).scalar_one()
    if not replicas and all(one.cordon_reason is not None for one in found):
        raise _already_drained(order, found)
    fresh = [one.node for one in found if one.cordon_reason is None]
    # An earlier drain of just these nodes may have left its cordon.
    name = drain_id(order.target)
    cordoned = [one.node for one in found if one.cordon_reason is None or one.cordoned_for == name]
    reason = shorten(f"{name}: {order.reason}")
    await write_cordons(connection, region, cordoned, reason=reason, actor=order.actor, drain=name)
    written = await connection.execute(
        _BEGIN,
        {
            **named,
            "request": order.request,
            "kind": order.target.kind.value,
            "name": order.target.name,
            "actor": order.actor,
            "reason": order.reason,
            "wait_for_jobs": order.wait_for_jobs,
            "cordoned": list(map(str, cordoned)),
            "replicas": replicas,
            "seconds": order.deadline.total_seconds(),
        },
    )
    drain = drain_of(written.mappings().one())
    await audit.append(
        connection,
        region,
        actor=order.actor,
        action="begin drain",
        target=drain_id(order.target),
        after={
            "nodes": list(map(str, nodes)),
            "cordoned": list(map(str, fresh)),
            "replicas": replicas,
            "deadline_at": drain.deadline_at.isoformat(),
            "wait_for_jobs": order.wait_for_jobs,
            "reason": order.reason,
            "request": order.request,
        },
    )
    ledger.record(order.message, {"request": order.request})
    await ledger.write(connection)
    return drain


@regional_transaction(ROLE, "mark what runs on {drain.target}")
async def mark_drained(connection: AsyncConnection, region: RegionId, drain: Drain) -> list[Share]:
    """Marks every live claim on the nodes, once each, while the drain runs; whose they are."""
    running = await connection.execute(_RUNS, {"region": region, "request": drain.request})
    if running.first() is None:
        return []
    marked = await mark_claims(
        connection,
        region,
        ClaimFilter(nodes=drain.nodes, is_job=False if drain.wait_for_jobs else None),
        _cause(drain),
        actor=drain.actor,
        reason=drain.reason,
    )
    if marked:
        await audit.append(
            connection,
            region,
            actor=drain.actor,
            action="mark claims",
            target=drain_id(drain.target),
            after={"claims": len(marked), "request": drain.request},
        )
    return marked


def _cause(drain: Drain) -> Cause:
    return Cause(CauseKind.DRAIN, drain.request)


@regional_transaction(ROLE, "end the drain of {drain.target}")
async def end_drain(
    connection: AsyncConnection,
    region: RegionId,
    drain: Drain,
    state: DrainState,
    *,
    actor: ActorId,
    outcome: str,
    message: OperatorMessage | None = None,
) -> EndedDrain:
    """Records how it ended, once; what it had not begun to move stays.

    Cancelled, its nodes take work again, unless another cordon keeps them. Otherwise they stay
    cordoned. A `message` that cancels it is counted, so that it ends no later drain as well.
    """
    await lock_region(connection, region)
    outcome = shorten(outcome)
    messages = [] if message is None else [message]
    ledger = await RequestLedger.read(connection, messages, LedgerSide.REGIONAL)
    before = None if message is None else ledger.find(message)
    row = None
    if before is None:
        named = {"region": region, "request": drain.request}
        written = {"state": state.value, "outcome": outcome}
        row = (await connection.execute(_END, {**named, **written})).mappings().one_or_none()
    if row is None:
        known = await find_drain(connection, region, drain.request)
        assert known is not None, "a drain keeps its row"
        return EndedDrain(known, answer=_repeated(before, message, drain))
    if message is not None:
        ledger.record(message, {"answer": CANCELLED, "request": drain.request})
        await ledger.write(connection)
    name = drain_id(drain.target)
    unmarked = await unmark_claims(connection, region, _cause(drain))
    kept = [] if state is DrainState.DRAINED else await _own_cordons(connection, drain)
    if state is DrainState.CANCELLED:
        await write_cordons(connection, region, kept, reason=None, actor=actor)
    elif state is DrainState.GAVE_UP:
        reason = shorten(f"{name} gave up: {drain.reason}")
        await write_cordons(connection, region, kept, reason=reason, actor=drain.actor, drain=name)
    await audit.append(
        connection,
        region,
        actor=actor,
        action="end drain",
        target=name,
        after={
            "state": state.value,
            "outcome": outcome,
            "uncordoned": list(map(str, kept)) if state is DrainState.CANCELLED else [],
            "request": drain.request,
        },
    )
    return EndedDrain(drain_of(row), unmarked, CANCELLED)


def _repeated(before: RecordedRequest | None, message: OperatorMessage | None, drain: Drain) -> str:
    """What a message that cancelled something before is answered: this drain, or an earlier one."""
    if before is None or message is None:
        return ""
    try:
        before.answer_to(message)
    except RefusedError as error:  # the drain goes on, and its sender learns why
        return error.refusal.sentence
    return CANCELLED if before.answer["request"] == drain.request else before.sentence_to(message)


async def _own_cordons(connection: AsyncConnection, drain: Drain) -> list[NodeId]:
    """Of the nodes that it cordoned, those that were not cordoned again by others since."""
    name, found = drain_id(drain.target), await find_nodes(connection, drain.target)
    return [one.node for one in found if one.node in drain.cordoned and one.cordoned_for == name]


def _of_other_nodes(drain: Drain) -> RefusedError:
    """A drain is known in its region by its request id alone."""
    return RefusedError(
        RefusalCode.KEY_CONFLICT,
        f"Request id {drain.request} was used by {drain.actor} for the drain of {drain.target}, "
        "which is not this request; send another request id.",
    )


def _already_drained(order: DrainOrder, found: list[FoundNode]) -> RefusedError:
    first = found[0]
    return RefusedError(
        RefusalCode.ALREADY_DRAINED,
        f"Nothing is left to drain: nothing runs on {order.target}, and {first.node} was cordoned "
        f"by {first.cordoned_by} ({(first.cordon_reason or '')[:200]}); `durable uncordon` lets it "
        "take work again.",
    )
