"""A policy revision for people: where it is, what it does, what can be sent."""

from collections.abc import Mapping, Sequence
from typing import Any

from durable.model.policy.rollout import (
    PolicyPhase,
    PolicyProgress,
    PolicyRollout,
    RolledBackShare,
    ShadowReport,
)
from durable.reports.report import ITEMS_SHOWN, Offer, Report, Section, line, listed, moment, waits
from durable.signals.names import POLICY, policy_id
from durable.signals.policies import PolicyStatus
from durable.validation.text import counted

_FOR_NOW: Mapping[PolicyPhase, Sequence[str]] = {
    PolicyPhase.SHADOW: ("promote", "rollback"),
    PolicyPhase.CANARY: ("rollback", "pause", "promote"),
    PolicyPhase.WIDENING: ("rollback", "pause", "promote"),
    PolicyPhase.EVERYWHERE: ("rollback",),
    PolicyPhase.SUPERSEDED: ("rollback",),
    PolicyPhase.ROLLING_BACK: ("rollback",),
    PolicyPhase.ROLLED_BACK: ("rollback",),
}


def describe_policy(status: PolicyStatus) -> Report:
    progress = status.progress
    return Report(
        title=f"Policy revision {status.revision}",
        summary="" if progress is None else summary_of_policy(progress),
        lines=(*(() if progress is None else _lines(progress)), *waits(status.unreachable)),
        sections=() if progress is None else _sections(progress),
        offer=_offer(status),
        status=status,
    )


def summary_of_policy(now: PolicyProgress) -> str:
    """`revision 5: canary; east canary, west published; waits: east is watched until ...`."""
    regions = ", ".join(f"{name} {one.state}" for name, one in sorted(now.regions.items()))
    why = f"; waits: {now.waits_for}" if now.waits_for else ""
    return f"{summary_of_rollout(now.rollout)}; {regions}{why}"


def summary_of_rollout(rollout: PolicyRollout) -> str:
    paused = ", paused" if rollout.is_paused else ""
    reason = f": {rollout.reason}" if rollout.reason else ""
    return f"revision {rollout.revision}: {rollout.phase}{paused} ({rollout.actor}{reason})"


def _offer(status: PolicyStatus) -> Offer:
    name, progress = policy_id(status.revision), status.progress
    if progress is None:
        return Offer(POLICY, signed_to=name)
    # What is pasted acts on what this page shows, and is refused when that has changed since.
    seen = {"after": progress.rollout.number}
    canary = next(iter(sorted(progress.regions)), None)
    begins = progress.rollout.phase is PolicyPhase.SHADOW and canary is not None
    own: dict[str, dict[str, Any]] = {
        "promote": {**seen, "canary": canary if begins else None},
        "pause": seen,
        "rollback": {**seen, "to": None},
    }
    return Offer(POLICY, _FOR_NOW[progress.rollout.phase], own, signed_to=name)


def _lines(progress: PolicyProgress) -> list[str]:
    rollout = progress.rollout
    paused = ", **paused**" if rollout.is_paused else ""
    return [
        f"**{rollout.phase}**{paused} since {moment(rollout.changed_at)}, order {rollout.number}",
        f"By {line(f'{rollout.actor}: {rollout.reason}')}",
        *waits(progress.waits_for),
    ]


def _sections(progress: PolicyProgress) -> tuple[Section, ...]:
    regions = tuple(f"- {one}: {p.state}" for one, p in sorted(progress.regions.items()))
    see = f"`durable policy show {progress.rollout.revision}`"
    return (
        Section("Regions", (*regions, *_health(progress))),
        *describe_rolled_back(progress.report, progress.report_count, see),
        *map(describe_shadow, progress.shadows),
    )


def describe_rolled_back(
    shares: Sequence[RolledBackShare], count: int, see: str = ""
) -> tuple[Section, ...]:
    """What became of each workload's replicas when their revision was rolled back."""
    shown = shares[:ITEMS_SHOWN]
    heads = ("Workload", "Region", "Decided again", "Go on", "Replaced")
    rows = (
        (
            f"{one.tenant}/{one.workload}",
            str(one.region),
            *map(str, (one.decided_again, one.goes_on, one.replaced)),
        )
        for one in shares
    )
    title = "What became of replicas that it had placed"
    return listed(title, [*map(str, shown)], count - len(shown), see, (heads, *rows))


def _health(progress: PolicyProgress) -> tuple[str, ...]:
    """How the region that is watched does, beside how it did before."""
    health, bake = progress.health, progress.rollout.bake
    if health is None or bake is None:
        return ()
    waited = "" if health.place_seconds is None else f", {health.place_seconds:.0f} s to place"
    return (
        f"{bake.region} since {moment(bake.since)}: {health.pending_percent:.0f} % wait "
        f"({bake.pending_percent_before:.0f} % before), "
        f"{health.refused} of {health.reserves} reservations refused{waited}",
    )


def describe_shadow(report: ShadowReport) -> Section:
    """What would have been decided otherwise in one region, by workload."""
    changed = report.changed
    unknown = f", {report.unrepeatable} not repeatable" if report.unrepeatable else ""
    decisions = counted(report.decisions, "recent decision")
    differ = "differs" if len(changed) == 1 else "differ"
    lines = tuple(
        f"- {one.tenant}/{one.workload}: {one.moved} of {counted(one.placed, 'replica')} "
        f"elsewhere, {one.gained} more placed, {one.lost} not placed"
        for one in changed[:ITEMS_SHOWN]
    )
    heads = ("Workload", "Decisions", "Placed by both", "Elsewhere", "Gained", "Lost")
    rows = (
        (
            f"{one.tenant}/{one.workload}",
            *map(str, (one.decisions, one.placed, one.moved, one.gained, one.lost)),
        )
        for one in changed
    )
    return Section(
        f"Shadow in {report.region}: {decisions} made again{unknown}; {len(changed)} of "
        f"{counted(len(report.workloads), 'workload')} {differ}",
        lines or ("No decision would change.",),
        (heads, *rows) if changed else (),
    )
