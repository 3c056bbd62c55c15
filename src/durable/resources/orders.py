"""Drains, overrides, recoveries, policies and operators, as lists show them."""

from collections.abc import Mapping
from datetime import datetime, timedelta

from pydantic import AwareDatetime, JsonValue

from durable.authority.db.clock import read_time
from durable.authority.db.everywhere import ask_regions
from durable.authority.drains.progress import read_progress
from durable.authority.drains.rows import read_drains
from durable.authority.fleet.policies import read_recovery_policy, read_revision
from durable.authority.operators.changes import list_operators, read_operator
from durable.authority.overrides.reads import RegionalEffect, drawn_on, read_effects
from durable.authority.overrides.rows import read_override, read_overrides, unknown_override
from durable.authority.policies.region_reads import (
    read_in_force,
    read_region_policy,
    read_reports,
)
from durable.authority.policies.rows import (
    list_rollouts,
    read_orders,
    read_rollout,
    read_shadows,
)
from durable.authority.recovery.recoveries import list_recoveries, newest_recovery, read_moves
from durable.authority.recovery.region_facts import read_fact
from durable.model.fleet.drain import Drain, DrainProgress, DrainState
from durable.model.ids import ActorId, OverrideId, PolicyRevision, RegionId
from durable.model.operators.rights import Operator
from durable.model.overrides.override import Override
from durable.model.policy.rollout import PolicyProgress, PolicyRollout, TakenOrder
from durable.model.recovery.recoveries import Recovery, RecoveryProgress
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.resources import show_amounts
from durable.model.states import OverrideState, PolicyState
from durable.planners.recovery.moves import most_telling, report_on
from durable.resources.resource import LIMIT, Filters, Rows, Sources
from durable.signals.names import drain_id, drain_target
from durable.validation.quantities import show_roughly
from durable.validation.text import counted

# ── drains ──────────────────────────────────────────────────────────────────────────────────────


class DrainRow(Drain):
    """A drain and how far it has come."""

    drain: str
    left: int
    waits_for: str | None

    @property
    def moved(self) -> str:
        """How many replicas were replaced, while it runs."""
        if self.state is not DrainState.DRAINING:
            return ""
        return f"{max(0, self.replicas - self.left)} of {self.replicas}"


def drain_row(drain: Drain, now: DrainProgress) -> DrainRow:
    runs = drain.state is DrainState.DRAINING
    return DrainRow(
        **dict(drain),
        drain=drain_id(drain.target),
        left=now.left if runs else 0,
        waits_for=now.waits_for if runs else drain.outcome,
    )


async def read_drain_rows(sources: Sources, filters: Filters) -> Rows[DrainRow]:
    databases = sources.databases

    async def read_region(region: RegionId) -> list[DrainRow]:
        drains = await read_drains(databases, region, ended=filters.enough if filters.ended else 0)
        return [drain_row(one, await read_progress(databases, region, one)) for one in drains]

    answers = await ask_regions(await sources.select_regions(filters.region), read_region)
    return Rows([row for rows in answers.by_region.values() for row in rows], answers.unreachable)


async def show_drain(sources: Sources, name: str) -> DrainRow:
    """The one that runs, or else the latest of these nodes."""
    databases, target = sources.databases, drain_target(name)
    for drain in await read_drains(databases, target.region, ended=LIMIT):
        if drain.target == target:
            return drain_row(drain, await read_progress(databases, target.region, drain))
    raise RefusedError(
        RefusalCode.UNKNOWN_DRAIN, f"There was no {name} lately; see `durable get drains --all`."
    )


# ── overrides ───────────────────────────────────────────────────────────────────────────────────

Effects = Mapping[RegionId, Mapping[OverrideId, RegionalEffect]]


class OverrideRow(Override):
    """An override, the time it has left, and what it has done so far."""

    left: str
    so_far: str
    obeyed_in: tuple[RegionId, ...]
    read_at: AwareDatetime
    unreachable: Mapping[RegionId, str] = {}


async def read_override_rows(sources: Sources, filters: Filters) -> Rows[OverrideRow]:
    databases = sources.databases
    answers = await ask_regions(
        await sources.select_regions(), lambda region: read_effects(databases, region)
    )
    used = drawn_on(answers.by_region.values())
    ended = filters.enough if filters.ended else 0
    overrides = await read_overrides(databases, ended=ended, also=used)
    now = await read_time(databases)
    rows = [override_row(one, answers.by_region, now) for one in overrides]
    return Rows(rows, answers.unreachable)


async def show_override(sources: Sources, name: str) -> OverrideRow:
    databases, id = sources.databases, OverrideId(name)
    override = await read_override(databases, id)
    if override is None:
        raise unknown_override(id)
    answers = await ask_regions(
        await sources.select_regions(), lambda region: read_effects(databases, region)
    )
    row = override_row(override, answers.by_region, await read_time(databases))
    return row.model_copy(update={"unreachable": answers.unreachable})


def override_row(override: Override, effects: Effects, now: datetime) -> OverrideRow:
    by_region = {
        region: found[override.id] for region, found in effects.items() if override.id in found
    }
    return OverrideRow(
        **dict(override),
        left=time_left(override, now),
        read_at=now,
        so_far=_effect(override, by_region),
        obeyed_in=tuple(region for region, one in by_region.items() if one.is_obeyed),
    )


def time_left(override: Override, now: datetime) -> str:
    """How long it still lasts, or may still be approved."""
    if override.has_ended:
        return ""
    left = override.expires_at - now
    if left < timedelta(seconds=1):
        return "ends now"
    return show_roughly(left)


def _effect(override: Override, by_region: Mapping[RegionId, RegionalEffect]) -> str:
    parts = [
        part for region, one in by_region.items() if (part := _in_region(override, region, one))
    ]
    if override.outcome:
        parts.insert(0, override.outcome)
    if not parts and override.state is OverrideState.PROPOSED:
        return "none yet: a second person has to approve it"
    if not parts and by_region:
        return f"obeyed in {', '.join(by_region)}"
    return "; ".join(parts)


def _in_region(override: Override, region: RegionId, effect: RegionalEffect) -> str:
    if effect.used is not None and effect.draw is not None:
        is_quota = override.effects.draw is not None
        after = "over quota until that has ended" if is_quota else "until that is replaced"
        over = "" if effect.is_obeyed else f", {after}"
        return f"{region}: {show_amounts(effect.used)} of {show_amounts(effect.draw)} in use{over}"
    if effect.marked:
        moved = effect.marked - effect.left_to_move
        return f"{region}: {moved} of {counted(effect.marked, 'replica')} moved"
    if effect.held_back:
        return f"{region}: {counted(effect.held_back, 'replica')} held back"
    return ""


# ── recoveries ──────────────────────────────────────────────────────────────────────────────────


async def read_recoveries(sources: Sources, filters: Filters) -> Rows[Recovery]:
    found = await list_recoveries(sources.databases, ended=filters.ended, most=filters.enough)
    return Rows(found)


async def show_recovery(sources: Sources, name: str) -> RecoveryProgress:
    """The newest recovery of a region."""
    databases, region = sources.databases, RegionId(name)
    recovery = await newest_recovery(databases, region)
    if recovery is None:
        # Refuses a region that does not exist.
        loss = (await read_fact(databases, region)).loss
        raise RefusedError(
            RefusalCode.WRONG_STATE,
            f"{region} was never lost. Budgets for its next loss are kept under the incident "
            f"{loss.incident}; see `durable get recoveries` for other regions.",
        )
    moves, now = await read_moves(databases, recovery.key), await read_time(databases)
    policy = await read_recovery_policy(databases)
    return RecoveryProgress(
        recovery=recovery,
        report=report_on(recovery, moves, policy, now),
        moves=tuple(most_telling(moves, policy)),
    )


# ── policies ────────────────────────────────────────────────────────────────────────────────────


class PolicyRow(PolicyRollout):
    """A revision, who published it, and where decisions are made under it."""

    in_force: Mapping[RegionId, PolicyState]
    published_by: ActorId
    published_at: AwareDatetime


class PolicyDetail(PolicyProgress):
    """Everything that is known of one revision."""

    unreachable: Mapping[RegionId, str] = {}
    orders: tuple[TakenOrder, ...]
    spec: dict[str, JsonValue]


async def read_policies(sources: Sources, filters: Filters) -> Rows[PolicyRow]:
    """The revisions, the newest first."""
    databases = sources.databases
    answers = await ask_regions(
        await sources.select_regions(), lambda region: read_in_force(databases, region)
    )
    rows = [
        PolicyRow(
            **dict(listed.rollout),
            in_force={
                region: states[listed.rollout.revision]
                for region, states in answers.by_region.items()
                if _decides(listed.rollout.revision, states)
            },
            published_by=listed.published_by,
            published_at=listed.published_at,
        )
        for listed in await list_rollouts(databases, filters.enough)
    ]
    return Rows(rows, answers.unreachable)


def _decides(revision: PolicyRevision, states: Mapping[PolicyRevision, PolicyState]) -> bool:
    """Beside a canary, the active revision decides nothing there."""
    canary = PolicyState.CANARY
    return states.get(revision) is canary or (revision in states and canary not in states.values())


async def show_policy(sources: Sources, name: str) -> PolicyDetail:
    databases, revision = sources.databases, int(name)
    rollout = await read_rollout(databases, revision)
    states = await ask_regions(
        await sources.select_regions(),
        lambda region: read_region_policy(databases, region, revision),
    )
    report = await read_reports(databases, revision)
    return PolicyDetail(
        rollout=rollout,
        spec=(await read_revision(databases, revision)).spec,
        regions=states.by_region,
        unreachable=states.unreachable,
        orders=tuple(await read_orders(databases, revision)),
        shadows=await read_shadows(databases, revision),
        report=report.shares,
        report_count=report.count,
    )


# ── operators ───────────────────────────────────────────────────────────────────────────────────


async def read_operators(sources: Sources, filters: Filters) -> Rows[Operator]:
    return Rows(await list_operators(sources.databases, removed=filters.ended))


async def show_operator(sources: Sources, name: str) -> Operator:
    return await read_operator(sources.databases, ActorId(name))
