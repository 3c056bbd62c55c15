"""A workload's rollout as the authority remembers it: numbered divisions, progress, the end of it.

Every division of a workload's slots that writes anything gets its number here, unless the workload
was changed or divided since it was read. What an older division still wants to write is refused,
here by the row's number and in every region by that of its rows.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import text

from durable.authority.audit import chain as audit
from durable.authority.db.clock import read_clock
from durable.authority.db.engine import AsyncConnection
from durable.authority.db.sent_rows import sent_rows
from durable.authority.db.transaction import global_transaction
from durable.authority.recovery.originals import find_kept
from durable.authority.slots.assignment import SlotOwner, SlotOwners
from durable.authority.workloads.events import audit_workload
from durable.authority.workloads.generations import find_stable, record_rollback, stable_spec
from durable.authority.workloads.rows import ROLE, lock_workload, never_admitted, workload_of
from durable.model.ids import ActorId, Generation, RegionId, TenantId, WorkloadName
from durable.model.recovery.readiness import Recoverable
from durable.model.work.rollout import GenerationRecord, RolloutState
from durable.model.work.running import OnReconnect
from durable.model.work.workload import AdmittedWorkload, WorkloadSpec, with_template
from durable.validation.text import shorten

_READ = text("""
    SELECT w.*, clock_timestamp() AS now, r.is_met, r.sentence
      FROM global.workloads AS w
      LEFT JOIN global.readiness AS r USING (tenant, workload)
     WHERE w.tenant = :tenant AND w.workload = :workload
""")

_OWNERS = text("""
    SELECT slot, region, number, is_leaving FROM global.slots
     WHERE tenant = :tenant AND workload = :workload AND region IS NOT NULL
""")

_MOVED = text("""
    SELECT unnest(m.slots)
      FROM global.recoveries AS r JOIN global.recovery_moves AS m USING (region, epoch)
     WHERE r.incident = :incident
       AND m.tenant = :tenant AND m.workload = :workload AND m.returned_at IS NULL
""")

_ADVANCE = text("""
    UPDATE global.workloads SET rollout = CAST(:rollout AS jsonb), revision = revision + 1
     WHERE tenant = :tenant AND workload = :workload AND revision = :revision
""")

# The rows are locked in one order, and what is recorded is what was found under the lock. Only one
# generation is what runs.
_COMPLETE = text(f"""
    WITH before AS (
        SELECT w.tenant, w.workload, w.generation, w.rollout
          FROM global.workloads AS w
          JOIN {
    sent_rows("rows", "row", "tenant text, workload text, generation bigint, revision bigint")
} USING (tenant, workload)
         WHERE w.generation = row.generation
           AND w.delete_requested_at IS NULL AND w.deleted_at IS NULL
           AND (w.rollout IS NOT NULL OR w.stable_generation IS DISTINCT FROM w.generation)
           AND (row.revision IS NULL OR w.revision = row.revision)
         ORDER BY tenant, workload FOR UPDATE OF w
    ), completed AS (
        UPDATE global.workloads AS w
           SET rollout = NULL, stable_generation = w.generation, revision = revision + 1
          FROM before WHERE w.tenant = before.tenant AND w.workload = before.workload
        RETURNING w.tenant, w.workload, w.generation, w.revision, before.rollout
    ), recorded AS (
        UPDATE global.generations AS g
           SET outcome = 'complete', outcome_reason = '', completed_at = clock_timestamp()
          FROM completed AS c
         WHERE (g.tenant, g.workload, g.generation) = (c.tenant, c.workload, c.generation)
    ), superseded AS (
        UPDATE global.generations AS g
           SET outcome = 'superseded', outcome_reason = 'by generation ' || c.generation
          FROM completed AS c
         WHERE (g.tenant, g.workload) = (c.tenant, c.workload) AND g.generation <> c.generation
           AND g.outcome IN ('complete', 'progressing')
    )
    SELECT tenant, workload, generation, revision, rollout FROM completed
""")

_GO_BACK = text("""
    UPDATE global.workloads
       SET generation = :generation, spec = CAST(:spec AS jsonb),
           share = CAST(:share AS jsonb), rollout = CAST(:rollout AS jsonb),
           revision = revision + 1
     WHERE tenant = :tenant AND workload = :workload
""")

_OPEN = text("SELECT region FROM global.regions WHERE state = 'open'")


@dataclass(frozen=True)
class WorkloadToDivide:
    """The workload as it is to be divided now, and which region owns which slot of it."""

    workload: AdmittedWorkload
    # What slots run whose turn has not come, if that is another generation.
    stable_spec: WorkloadSpec | None
    owners: SlotOwners
    # Whether no region is about to lose a slot, and some division has seen this generation.
    is_settled: bool
    now: datetime
    # Slots that a lost region keeps: a division leaves them as they are.
    kept: frozenset[int] = frozenset()
    # Slots that a recovery moved: they draw on its budgets.
    moved: frozenset[int] = frozenset()
    # Of critical work: whether it would come back if a region were lost.
    recoverable: Recoverable | None = None


@global_transaction(ROLE, "read {tenant}/{workload} to divide it")
async def read_to_divide(
    connection: AsyncConnection, tenant: TenantId, workload: WorkloadName
) -> WorkloadToDivide:
    """Before anything else is read for a division: what changes since then has another number."""
    of = {"tenant": tenant, "workload": workload}
    row = (await connection.execute(_READ, of)).mappings().one_or_none()
    if row is None:
        raise never_admitted(tenant, workload)
    found = workload_of(row)
    owned = (await connection.execute(_OWNERS, of)).all()
    return WorkloadToDivide(
        found,
        await stable_spec(connection, found),
        {one.slot: SlotOwner(RegionId(one.region), one.number) for one in owned},
        is_settled=row["observed_generation"] == found.generation
        and not any(one.is_leaving for one in owned),
        now=row["now"],
        kept=await _kept(connection, found),
        moved=await _moved(connection, found),
        recoverable=None
        if row["is_met"] is None
        else Recoverable(is_met=row["is_met"], sentence=row["sentence"]),
    )


async def _kept(connection: AsyncConnection, workload: AdmittedWorkload) -> frozenset[int]:
    """What its regions keep of it; most workloads need not be asked about."""
    if workload.spec.run.on_reconnect is not OnReconnect.ORIGINAL:
        return frozenset()
    key = (str(workload.tenant), str(workload.workload))
    return (await find_kept(connection, [key])).get(key, frozenset())


async def _moved(connection: AsyncConnection, workload: AdmittedWorkload) -> frozenset[int]:
    if workload.incident is None:
        return frozenset()
    of = {"tenant": workload.tenant, "workload": workload.workload, "incident": workload.incident}
    return frozenset((await connection.execute(_MOVED, of)).scalars())


@global_transaction(ROLE, "number a division of {workload.workload}")
async def begin_division(
    connection: AsyncConnection, workload: AdmittedWorkload, rollout: RolloutState | None
) -> int | None:
    """The number of the next division, which keeps how far the rollout has come.

    None if the workload was changed or divided since it was read: then it has to be read again.
    """
    return await advance_rollout(connection, workload, rollout)


async def advance_rollout(
    connection: AsyncConnection, workload: AdmittedWorkload, rollout: RolloutState | None
) -> int | None:
    """Writes a rollout under the next number, unless another number was taken since."""
    written = await connection.execute(
        _ADVANCE,
        {
            "tenant": workload.tenant,
            "workload": workload.workload,
            "revision": workload.revision,
            "rollout": None if rollout is None else rollout.model_dump_json(),
        },
    )
    return workload.revision + 1 if written.rowcount else None


@dataclass(frozen=True)
class Completion:
    """A generation all of whose replicas served at once."""

    tenant: TenantId
    workload: WorkloadName
    generation: Generation
    # Of the division that found it; None if no division did.
    revision: int | None = None


@global_transaction(ROLE, "record that generations are complete")
async def complete_generations(
    connection: AsyncConnection, completions: Sequence[Completion], *, actor: ActorId
) -> list[int | None]:
    """Records that every replica of a generation served at once; a second time changes nothing.

    Takes the next number, so that no division that read the rollout before writes it back, and
    answers it. None if nothing changed: it was recorded, or a division with a number was overtaken.
    """
    rows = json.dumps([asdict(one) for one in completions])
    completed = (await connection.execute(_COMPLETE, {"rows": rows})).all()
    events = [_completed_rollout(row, actor) for row in completed if row.rollout is not None]
    if events:
        await audit.append_all(connection, audit.GLOBAL_CHAIN, events)
    numbers = {(row.tenant, row.workload, row.generation): row.revision for row in completed}
    return [numbers.get((one.tenant, one.workload, one.generation)) for one in completions]


def _completed_rollout(row: Any, actor: ActorId) -> audit.Event:
    rollback = RolloutState.read(row.rollout).rollback
    return audit.Event(
        actor=actor,
        action="complete rollout",
        target=f"workload/{row.tenant}/{row.workload}",
        before={"generation": row.generation},
        after={"generation": row.generation, "rollback": rollback},
    )


@global_transaction(ROLE, "begin to roll back {tenant}/{workload}")
async def begin_rollback(
    connection: AsyncConnection,
    tenant: TenantId,
    workload: WorkloadName,
    revision: int,
    *,
    reason: str,
    actor: ActorId,
) -> None:
    """Goes back to the last generation that was good; without one, only the failure is kept.

    Nothing changes if the workload was changed or divided since this revision: whoever paused the
    rollout meanwhile wants to look at it, and a newer division may judge otherwise.
    """
    before = await lock_workload(connection, tenant, workload)
    has_ended = before is None or before.deleted or before.deleting
    if before is None or has_ended or before.revision != revision or before.rollout is None:
        return
    await go_back(connection, before, reason=reason)
    after = {"generation": before.generation, "to": before.stable_generation, "reason": reason}
    was = {"generation": before.generation}
    await audit_workload(connection, before, "begin rollback", actor, after, before=was)


async def go_back(connection: AsyncConnection, workload: AdmittedWorkload, *, reason: str) -> None:
    """Wants the stable generation again, as many replicas of it as there are to be now."""
    now = await read_clock(connection)
    stable, spec, share = workload.stable_generation, workload.spec, workload.share
    good = await find_stable(connection, workload)
    if stable is None or good is None:
        stable = workload.generation
    else:
        spec = with_template(spec, WorkloadSpec.read(good.spec))
        share = await share_of(connection, workload, good)
        name = (workload.tenant, workload.workload, workload.generation)
        await record_rollback(connection, *name, reason)
    rollout = RolloutState(started_at=now, progressed_at=now, rollback=shorten(reason))
    written = {
        "tenant": workload.tenant,
        "workload": workload.workload,
        "generation": stable,
        "spec": json.dumps(spec.model_dump(mode="json")),
        "share": json.dumps(share),
        "rollout": rollout.model_dump_json(),
    }
    await connection.execute(_GO_BACK, written)


async def share_of(
    connection: AsyncConnection, workload: AdmittedWorkload, good: GenerationRecord
) -> Mapping[RegionId, tuple[int, ...]]:
    """Where a generation that was good had its slots; a region that was lost since gets none.

    What runs it still is there, and the spec that is left may have named other regions. Slots that
    came since stay where they are, if that is one of its regions.
    """
    is_open = set((await connection.execute(_OPEN)).scalars())
    homes = {slot: region for region, slots in workload.share.items() for slot in slots}
    regions = sorted(is_open.intersection(good.share))
    if not regions:
        return workload.share
    before = {slot: region for region in regions for slot in good.share[region]}
    share: dict[RegionId, list[int]] = {region: [] for region in regions}
    for slot in range(workload.spec.replicas):
        home = before.get(slot, homes.get(slot))
        if home not in share:
            home = min(regions, key=lambda region: len(share[region]))
        share[home].append(slot)
    return {region: tuple(slots) for region, slots in share.items() if slots}
