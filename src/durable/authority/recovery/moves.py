"""Moves slots out of a lost region, and back: which slots each region is to run, and no more.

One transaction for a few workloads: their rows are locked in one order, each gets new shares under
a new revision, and the recovery remembers what it moved. The divisions of the workloads do the
rest, within whatever their regions allow.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import text

from durable.authority.audit.chain import GLOBAL_CHAIN, Event, append_all
from durable.authority.db.engine import AsyncConnection
from durable.authority.db.sent_rows import sent_rows
from durable.authority.db.transaction import global_transaction
from durable.authority.recovery.recoveries import ROLE, of_key
from durable.authority.recovery.region_facts import lock_fact
from durable.authority.workloads.rows import RowKey, lock_workloads
from durable.model.ids import ActorId, IncidentId, RegionId, TenantId, WorkloadName
from durable.model.recovery.recoveries import RecoveryKey, WorkloadMove
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.work.workload import AdmittedWorkload, WorkloadKind
from durable.validation.text import shorten

Shares = Mapping[RegionId, tuple[int, ...]]
# Given the locked workload, its new shares; a refusal says why it stays.
Divide = Callable[[AdmittedWorkload], Shares]

# What has slots in the region. A service that was moved and has some there again, because whoever
# gave them did not know of the loss yet, moves once more; a job keeps there what it has done.
_AFFECTED = text("""
    INSERT INTO global.recovery_moves AS m
           (region, epoch, tenant, workload, kind, priority, replicas, slots)
    SELECT :region, :epoch, w.tenant, w.workload, coalesce(w.spec ->> 'kind', 'service'),
           coalesce((w.spec ->> 'priority')::integer, 0),
           coalesce((w.spec ->> 'replicas')::integer, 0),
           ARRAY(SELECT jsonb_array_elements_text(w.share -> CAST(:region AS text))::integer)
      FROM global.workloads AS w
     WHERE w.deleted_at IS NULL AND jsonb_array_length(w.share -> CAST(:region AS text)) > 0
     ORDER BY w.tenant, w.workload
        ON CONFLICT (region, epoch, tenant, workload) DO UPDATE
       SET slots = ARRAY(SELECT unnest(m.slots) UNION SELECT unnest(excluded.slots) ORDER BY 1),
           moved_at = NULL, whole_at = NULL
     WHERE m.moved_at IS NOT NULL AND m.returned_at IS NULL AND m.kind = 'service'
""")

# Of what was deleted meanwhile, nothing has to come back.
_COUNT = text("""
    UPDATE global.recovery_moves AS m
       SET replicas = CASE WHEN w.delete_requested_at IS NULL
                           THEN coalesce((w.spec ->> 'replicas')::integer, 0) ELSE 0 END
      FROM global.workloads AS w
     WHERE m.region = :region AND m.epoch = :epoch AND m.whole_at IS NULL
       AND w.tenant = m.tenant AND w.workload = m.workload
       AND m.replicas <> CASE WHEN w.delete_requested_at IS NULL
                              THEN coalesce((w.spec ->> 'replicas')::integer, 0) ELSE 0 END
""")

_WRITE = text(f"""
    UPDATE global.workloads AS w
       SET share = row.share, revision = w.revision + 1, incident = row.incident
      FROM {sent_rows("rows", "row", "tenant text, workload text, share jsonb, incident text")}
     WHERE w.tenant = row.tenant AND w.workload = row.workload
""")

_MOVED = text(f"""
    UPDATE global.recovery_moves AS m
       SET slots = row.slots, waits = row.waits, tried_at = clock_timestamp(),
           moved_at = CASE WHEN row.waits = '' AND NOT :is_return
                           THEN coalesce(m.moved_at, clock_timestamp()) ELSE m.moved_at END,
           returned_at = CASE WHEN row.waits = '' AND :is_return
                              THEN clock_timestamp() ELSE m.returned_at END
      FROM {sent_rows("rows", "row", "tenant text, workload text, slots integer[], waits text")}
     WHERE m.region = :region AND m.epoch = :epoch
       AND m.tenant = row.tenant AND m.workload = row.workload
""")

# What had come from another loss before it was moved on from here, and has gone back there since.
_BACK_ELSEWHERE = text("""
    SELECT m.tenant, m.workload, unnest(other.slots) AS slot
      FROM global.recovery_moves AS m
      JOIN global.recovery_moves AS other USING (tenant, workload)
     WHERE m.region = :region AND m.epoch = :epoch AND other.region <> m.region
       AND other.moved_at < m.moved_at AND other.returned_at > m.moved_at
""")

_END_INCIDENT = text("""
    UPDATE global.workloads SET incident = NULL, revision = revision + 1
     WHERE incident = :incident AND deleted_at IS NULL
    RETURNING tenant, workload
""")


@global_transaction(ROLE, "list what {key} has to move")
async def list_affected(connection: AsyncConnection, key: RecoveryKey) -> None:
    """Notes every workload that has slots in the region, and how many replicas each is to have."""
    await connection.execute(_AFFECTED, of_key(key))
    await connection.execute(_COUNT, of_key(key))


@global_transaction(ROLE, "move workloads out of {key.region}")
async def move_out(
    connection: AsyncConnection,
    key: RecoveryKey,
    moves: Sequence[WorkloadMove],
    divisions: Mapping[RowKey, Divide],
    *,
    actor: ActorId,
) -> list[RowKey]:
    """Gives the slots of the region to others; answers which workloads have news."""
    await _refuse_later_loss(connection, key)
    return await _move(
        connection, key, moves, divisions, actor=actor, incident=key.incident, is_return=False
    )


@global_transaction("durable_reader", "read what of {key} has gone back to other regions")
async def read_back_elsewhere(
    connection: AsyncConnection, key: RecoveryKey
) -> dict[RowKey, frozenset[int]]:
    """By workload, the slots that were only guests of the region: others have them back."""
    found: dict[RowKey, set[int]] = defaultdict(set)
    for row in await connection.execute(_BACK_ELSEWHERE, of_key(key)):
        found[row.tenant, row.workload].add(row.slot)
    return {name: frozenset(slots) for name, slots in found.items()}


@global_transaction(ROLE, "move workloads back to {key.region}")
async def move_back(
    connection: AsyncConnection,
    key: RecoveryKey,
    moves: Sequence[WorkloadMove],
    divisions: Mapping[RowKey, Divide],
    *,
    to: RecoveryKey,
    actor: ActorId,
) -> list[RowKey]:
    """Gives the region what was moved out of it; as ordinary work, which draws on no budget.

    `to` is the recovery that gives it back: this one, or a later one that has superseded it.
    """
    await _refuse_later_loss(connection, to)
    return await _move(
        connection, key, moves, divisions, actor=actor, incident=None, is_return=True
    )


async def _refuse_later_loss(connection: AsyncConnection, key: RecoveryKey) -> None:
    """A recovery that does not know yet that its region was lost again moves nothing any more."""
    fact = await lock_fact(connection, key.region)
    if fact.epoch != key.epoch:
        raise RefusedError(
            RefusalCode.FENCED_WRITER,
            f"{key.region} is at epoch {fact.epoch}, so {key} moves nothing any more; see "
            "`durable get recoveries`.",
        )


async def _move(
    connection: AsyncConnection,
    key: RecoveryKey,
    moves: Sequence[WorkloadMove],
    divisions: Mapping[RowKey, Divide],
    *,
    actor: ActorId,
    incident: IncidentId | None,
    is_return: bool,
) -> list[RowKey]:
    names = {WorkloadMove.key_of(move): move for move in moves}
    workloads = await lock_workloads(connection, set(names))
    written: list[dict[str, Any]] = []
    noted: list[dict[str, Any]] = []
    events: list[Event] = []
    # In the order given: of what is scarce, those that come first take first.
    for name, move in names.items():
        before = workloads.get(name)
        if before is None or before.deleted:
            noted.append(_note(move, move.slots, ""))
            continue
        try:
            share = divisions[name](before)
        except RefusedError as error:
            noted.append(_note(move, move.slots, error.refusal.sentence))
            continue
        slots = move.slots if is_return else _moved(key.region, move, before.share, share)
        noted.append(_note(move, slots, ""))
        if dict(share) == dict(before.share) and before.incident == incident:
            continue
        plain = {str(region): list(some) for region, some in share.items()}
        of = {"tenant": name[0], "workload": name[1]}
        written.append({**of, "share": plain, "incident": incident and str(incident)})
        events.append(
            Event(
                actor=actor,
                action="move back to region" if is_return else "move out of region",
                target=f"workload/{'/'.join(name)}",
                before={"share": _plain(before.share)},
                after={"share": plain, "recovery": str(key)},
            )
        )
    if written:
        await connection.execute(_WRITE, {"rows": json.dumps(written)})
        await append_all(connection, GLOBAL_CHAIN, events)
    if noted:
        sent = {**of_key(key), "rows": json.dumps(noted), "is_return": is_return}
        await connection.execute(_MOVED, sent)
    return [(row["tenant"], row["workload"]) for row in written]


@global_transaction(ROLE, "end the draws of {key}")
async def end_incident(
    connection: AsyncConnection, key: RecoveryKey
) -> list[tuple[TenantId, WorkloadName]]:
    """What it moved is ordinary work from here on; answers whose shares have to say so."""
    rows = await connection.execute(_END_INCIDENT, {"incident": key.incident})
    return [(TenantId(row.tenant), WorkloadName(row.workload)) for row in rows]


def _moved(region: RegionId, move: WorkloadMove, before: Shares, after: Shares) -> tuple[int, ...]:
    """The slots that leave the region, now or before; a job keeps there what it has done."""
    left = set(before.get(region, ())) - set(after.get(region, ()))
    if move.kind is WorkloadKind.SERVICE:
        left.update(move.slots)
    return tuple(sorted(left))


def _note(move: WorkloadMove, slots: Iterable[int], waits: str) -> dict[str, Any]:
    named = {"tenant": str(move.tenant), "workload": str(move.workload)}
    return {**named, "slots": list(slots), "waits": shorten(waits)}


def _plain(share: Shares) -> dict[str, list[int]]:
    return {str(region): list(slots) for region, slots in share.items()}
