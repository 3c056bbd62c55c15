"""A policy revision's page in the Temporal UI: where it is, what it does, what can be sent."""

from collections.abc import Mapping, Sequence
from typing import Any

from durable.model.policy.rollout import PolicyProgress, PolicyStage, ShadowReport
from durable.signals.names import POLICY, policy_id
from durable.signals.policies import PolicyStatus
from durable.validation.text import counted
from durable.workflows.page_parts import examples, line, moment, paragraphs, rejected_lines

SHOWN = 20

_FOR_NOW: Mapping[PolicyStage, Sequence[str]] = {
    PolicyStage.SHADOW: ("promote", "rollback"),
    PolicyStage.CANARY: ("rollback", "pause", "promote"),
    PolicyStage.WIDENING: ("rollback", "pause", "promote"),
    PolicyStage.EVERYWHERE: ("rollback",),
    PolicyStage.SUPERSEDED: ("rollback",),
    PolicyStage.ROLLING_BACK: ("rollback",),
    PolicyStage.ROLLED_BACK: ("rollback",),
}


def policy_page(status: PolicyStatus, request_id: str) -> str:
    """`request_id` is one that no message had yet, so that the examples work when pasted."""
    lines = [f"## Policy revision {status.revision}"]
    progress = status.progress
    if progress is not None:
        lines += _progress(progress)
    if status.unreachable:
        lines.append(f"**Waits**: {line(status.unreachable)}")
    own: dict[str, dict[str, Any]] = {}
    for_now: Sequence[str] = ()
    if progress is not None:
        # Whoever pastes it acts on what this page shows, and is told when it has changed since.
        seen = {"after": progress.rollout.number}
        canary = next(iter(sorted(progress.regions)), None)
        begins = progress.rollout.stage is PolicyStage.SHADOW and canary is not None
        own = {
            "promote": {**seen, "canary": canary if begins else None},
            "pause": seen,
            "rollback": {**seen, "to": None},
        }
        for_now = _FOR_NOW[progress.rollout.stage]
    shown = examples(POLICY, request_id, own, for_now, signed_to=policy_id(status.revision))
    return paragraphs([*lines, *rejected_lines(status), *shown])


def _progress(progress: PolicyProgress) -> list[str]:
    rollout = progress.rollout
    paused = ", **paused**" if rollout.is_paused else ""
    lines = [
        f"**{rollout.stage}**{paused} since {moment(rollout.changed_at)}, order {rollout.number}",
        f"By {line(f'{rollout.actor}: {rollout.reason}')}",
    ]
    if progress.waits_for:
        lines.append(f"**Waits**: {line(progress.waits_for)}")
    lines += [
        "### Regions",
        *(f"- {one}: {p.state}" for one, p in sorted(progress.regions.items())),
    ]
    health = progress.health
    if health is not None and rollout.bake is not None:
        waited = "" if health.place_seconds is None else f", {health.place_seconds:.0f} s to place"
        lines.append(
            f"{rollout.bake.region} since {moment(rollout.bake.since)}: "
            f"{health.pending_percent:.0f} % wait "
            f"({rollout.bake.pending_percent_before:.0f} % before), "
            f"{health.refused} of {health.reserves} reservations refused{waited}"
        )
    if progress.report:
        lines += ["### What became of replicas", *(f"- {one}" for one in progress.report[:SHOWN])]
        more = progress.report_count - len(progress.report[:SHOWN])
        lines += [f"- and {more} more: `durable policy show {rollout.revision}`"] if more else []
    for report in progress.shadows:
        lines += _shadow(report)
    return lines


def _shadow(report: ShadowReport) -> list[str]:
    changed = [one for one in report.workloads if not one.is_same]
    unknown = f", {report.unrepeatable} not repeatable" if report.unrepeatable else ""
    decisions = counted(report.decisions, "decision")
    head = f"### Shadow in {report.region}: {decisions} made again{unknown}"
    if not changed:
        return [head, "No decision would change."]
    return [
        head,
        *(
            f"- {one.tenant}/{one.workload}: {one.moved} of {counted(one.placed, 'replica')} "
            f"elsewhere, {one.gained} more placed, {one.lost} not placed"
            for one in changed[:SHOWN]
        ),
    ]
