"""The regional commit: one transaction that turns a batch of intents into truth.

    lock the region  ->  read the clock  ->  recall recorded outcomes  ->  read what the batch
    touches  ->  decide intent by intent  ->  record outcomes  ->  write set by set  ->  COMMIT

READ COMMITTED is chosen: the first statement takes the region's row lock, and every later statement
sees all that earlier holders of the lock committed. Under REPEATABLE READ the snapshot would be as
old as the wait for the lock, and the decisions wrong. The rules decide on rows that no other can
change; the schema's constraints would refuse a wrong one, and the batch is then taken apart.
"""

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final

from durable.authority.commit.ledger_reads import lock_ledger, read_touched
from durable.authority.commit.ledger_writes import outcome_row, recall_outcomes, write_ledger
from durable.authority.commit.reserve_rules import refused
from durable.authority.commit.rules import decide
from durable.authority.db.batching import MAX_WAITING, Batcher
from durable.authority.db.connection import Databases, transact
from durable.authority.db.engine import AsyncConnection, Engine
from durable.authority.db.errors import BrokenConstraintError
from durable.authority.db.fair_queue import Turn
from durable.model.ids import RegionId
from durable.model.placement.intents import AnyIntent, Granted, IntentKey, Refused, Reserve
from durable.model.refusal import RefusalCode

MAX_BATCH: Final = 512

# A fenced or mistaken writer changes nothing, not even the list of its own keys.
_UNRECORDED = frozenset({RefusalCode.FENCED_WRITER, RefusalCode.KEY_CONFLICT})


class GroupCommit(Batcher[AnyIntent, Granted | Refused]):
    """One region's queue of intents: those that arrive within milliseconds share a transaction.

    Each intent has its own outcome, recorded under its key.
    """

    def __init__(self, databases: Databases, region: RegionId) -> None:
        self._region = region
        engine = databases.at_region(region, "durable_commit")
        commit = partial(commit_intents, engine, region)
        super().__init__(
            f"commit queue of {region}",
            "intent",
            commit,
            max_batch=MAX_BATCH,
            max_waiting=MAX_WAITING,
            turn_of=lambda intent: Turn(intent.tenant, -_turn(intent)),
        )

    async def submit(self, item: AnyIntent) -> Granted | Refused:
        """The intent's outcome, once its batch has committed."""
        assert item.region == self._region, "a queue is of one region"
        return await super().submit(item)


async def commit_intents(
    engine: Engine,
    region: RegionId,
    intents: Sequence[AnyIntent],
    *,
    now: datetime | None = None,
) -> list[Granted | Refused]:
    """Commits up to MAX_BATCH intents of one region; one outcome per intent, in their order."""
    assert len(intents) <= MAX_BATCH, f"a batch has at most {MAX_BATCH} intents"
    assert all(intent.region == region for intent in intents), "a batch is of one region"
    batch = partial(_commit_batch, region=region, intents=intents, now=now)
    try:
        return await transact(engine, batch, doing=f"commit to {region}")
    except BrokenConstraintError:
        if len(intents) == 1:
            record = partial(_record_broken, region=region, intent=intents[0])
            return [await transact(engine, record, doing=f"commit to {region}")]
    # One intent broke a constraint that the rules should have seen: committing each alone finds it,
    # in the order in which the batch would have been decided.
    alone: dict[int, Granted | Refused] = {}
    for place, intent in sorted(enumerate(intents), key=lambda item: _turn(item[1])):
        (alone[place],) = await commit_intents(engine, region, [intent], now=now)
    return [alone[place] for place in range(len(intents))]


async def _commit_batch(
    connection: AsyncConnection,
    region: RegionId,
    intents: Sequence[AnyIntent],
    now: datetime | None,
) -> list[Granted | Refused]:
    ledger = await lock_ledger(connection, region, now)
    if ledger is None:
        unknown = refused(
            RefusalCode.UNKNOWN_REGION,
            f"There is no region {region}; see `durable fleet show`.",
        )
        return [unknown for _ in intents]
    outcomes = await recall_outcomes(connection, ledger, intents)
    fresh: dict[IntentKey, AnyIntent] = {}
    for intent in intents:
        if intent.key not in outcomes:
            fresh.setdefault(intent.key, intent)
    await read_touched(connection, ledger, list(fresh.values()))
    rows: list[dict[str, Any]] = []
    for intent in sorted(fresh.values(), key=_turn):
        outcome = decide(ledger, intent)
        outcomes[intent.key] = (intent.payload_sha256, outcome)
        if is_final(intent, outcome):
            rows.append(outcome_row(intent, outcome))
    await write_ledger(connection, ledger, rows)
    return [_answer(intent, *outcomes[intent.key]) for intent in intents]


def is_final(intent: AnyIntent, outcome: Granted | Refused) -> bool:
    """Whether the outcome is recorded, so that its key never has another one.

    What may pass by itself, such as a lapsed lease, wedges no claim: its step is asked for again
    under the same key, however long that takes. A slot is reserved again under its next attempt.
    """
    if isinstance(outcome, Granted):
        return True
    may_pass = outcome.refusal.waiting_helps and not isinstance(intent, Reserve)
    return not may_pass and outcome.refusal.code not in _UNRECORDED


def _turn(intent: AnyIntent) -> int:
    """What frees capacity goes first, then the highest priority; equals keep their order."""
    return -intent.priority - intent.raised_by if isinstance(intent, Reserve) else -1_000_000


def _answer(intent: AnyIntent, digest: bytes, outcome: Granted | Refused) -> Granted | Refused:
    if digest == intent.payload_sha256:
        return outcome
    return refused(
        RefusalCode.KEY_CONFLICT,
        f"{intent.key} was used before for another request; send this one under the next ordinal.",
    )


async def _record_broken(
    connection: AsyncConnection, region: RegionId, intent: AnyIntent
) -> Granted | Refused:
    """Keeps the refusal under its key: a resend does not take its neighbours apart again."""
    ledger = await lock_ledger(connection, region, None)
    assert ledger is not None, "a region is never deleted"
    outcomes = await recall_outcomes(connection, ledger, [intent])
    if intent.key in outcomes:
        return _answer(intent, *outcomes[intent.key])
    broken = refused(
        RefusalCode.BROKEN_CONSTRAINT,
        f"A constraint of the authority refused {intent.key}; nothing changed. "
        "This is a defect: report it with this key.",
    )
    await write_ledger(connection, ledger, [outcome_row(intent, broken)])
    return broken
