"""What is wrong, in sentences: what it means, what to do next, and the runbook that says more."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from pathlib import Path

from durable.validation.text import show_moment
from durable.validation.value import Value

NAMES_SHOWN = 3
MIB = 2**20


class FindingCode(StrEnum):
    """For programs; the sentence is for people."""

    WORKFLOWS_MISSING = "workflows_missing"
    WORKLOADS_UNMANAGED = "workloads_unmanaged"
    PLACEMENTS_MISSING = "placements_missing"
    WORKFLOWS_FAILING = "workflows_failing"
    CLAIMS_OVERDUE = "claims_overdue"
    DISK_FULL = "disk_full"
    QUEUE_UNSERVED = "queue_unserved"
    REGION_WITHOUT_NODES = "region_without_nodes"
    REGION_IMPAIRED = "region_impaired"
    REGION_FENCED = "region_fenced"
    REGION_LEASE_LAPSED = "region_lease_lapsed"
    REGION_UNREACHABLE = "region_unreachable"
    TEMPORAL_UNREACHABLE = "temporal_unreachable"


class HealthFinding(Value):
    """One thing that is wrong; while there is one, a placement may not go through."""

    code: FindingCode
    sentence: str
    runbook: str
    # The workflows, regions or paths that it is about.
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.sentence} See {self.runbook}."


_COMES_BACK = (
    "Nothing that fails there is replaced meanwhile. The global worker starts what is missing "
    "within a minute; `durable reconcile` does so at once."
)


def workloads_unmanaged(names: Sequence[str], wanted: int) -> HealthFinding:
    """Some workloads without a workflow, or all of them: then Temporal has lost everything."""
    if len(names) == wanted:
        count = "the one workload" if wanted == 1 else f"any of the {wanted:,} workloads"
        return HealthFinding(
            code=FindingCode.WORKFLOWS_MISSING,
            sentence=f"Workflows are missing: Temporal runs none for {count} that the authority "
            "wants, as if its database had been lost. What serves keeps serving, and nothing that "
            "fails is replaced. The global worker starts them again within a minute; `durable "
            "reconcile` does so at once.",
            runbook="runbooks/temporal-lost.md",
            names=tuple(names),
        )
    return HealthFinding(
        code=FindingCode.WORKLOADS_UNMANAGED,
        sentence=f"{_count(names, 'workload')} wanted, but no workflow manages {_them(names)}: "
        f"{_some(names)}. {_COMES_BACK}",
        runbook="runbooks/temporal-lost.md",
        names=tuple(names),
    )


def placements_missing(ids: Sequence[str]) -> HealthFinding:
    return HealthFinding(
        code=FindingCode.PLACEMENTS_MISSING,
        sentence=f"{_count(ids, 'placement')} wanted, but no workflow runs for {_them(ids)}: "
        f"{_some(ids)}. {_COMES_BACK}",
        runbook="runbooks/temporal-lost.md",
        names=tuple(ids),
    )


def workflows_failing(problems: Mapping[str, str]) -> HealthFinding:
    """Workflow ids with the last cause of each."""
    ids = sorted(problems)
    verb = "fails its" if len(ids) == 1 else "fail their"
    noun = "workflow" if len(ids) == 1 else "workflows"
    return HealthFinding(
        code=FindingCode.WORKFLOWS_FAILING,
        sentence=f"{len(ids):,} {noun} {verb} tasks again and again, and nothing that was sent to "
        f"{_them(ids)} is answered: {_some([f'{id} ({problems[id]})' for id in ids])}.",
        runbook="runbooks/workflow-stuck.md",
        names=tuple(ids),
    )


def claims_overdue(region: str, count: int, since: datetime) -> HealthFinding:
    noun, have = ("reservation", "is") if count == 1 else ("reservations", "are")
    return HealthFinding(
        code=FindingCode.CLAIMS_OVERDUE,
        sentence=f"{count:,} {noun} in {region} {have} held past expiry, the oldest since "
        f"{show_moment(since)}: that capacity is of no use to anybody until the region's "
        "worker frees it.",
        runbook="runbooks/worker-down.md",
        names=(region,),
    )


def disk_full(part: str, path: Path, free_bytes: int) -> HealthFinding:
    return HealthFinding(
        code=FindingCode.DISK_FULL,
        sentence=f"The disk of {part} is full: {path} has {free_bytes / MIB:.1f} MiB left. Free "
        "some space there, and everything continues by itself.",
        runbook="runbooks/disk-full.md",
        names=(str(path),),
    )


def queue_unserved(queue: str, region: str | None) -> HealthFinding:
    where = "workloads" if region is None else region
    effect = (
        "nothing can be applied, scaled or deleted"
        if region is None
        else "nothing is placed or replaced there"
    )
    return HealthFinding(
        code=FindingCode.QUEUE_UNSERVED,
        sentence=f"No worker serves {where}: {effect} until one polls {queue}.",
        runbook="runbooks/worker-down.md",
        names=(queue,),
    )


def region_without_nodes(region: str, nodes: int) -> HealthFinding:
    return HealthFinding(
        code=FindingCode.REGION_WITHOUT_NODES,
        sentence=f"No node of {region} has a live lease (of {nodes:,}): nothing can be placed "
        "there; check that an agent runs.",
        runbook="runbooks/worker-down.md",
        names=(region,),
    )


def region_unreachable(region: str, why: str) -> HealthFinding:
    return HealthFinding(
        code=FindingCode.REGION_UNREACHABLE,
        sentence=f"The database of {region} is out of reach, so nothing changes there. {why}",
        runbook="runbooks/stack.md",
        names=(region,),
    )


def region_impaired(region: str, kind: str, sentence: str, since: datetime) -> HealthFinding:
    return HealthFinding(
        code=FindingCode.REGION_IMPAIRED,
        sentence=f"{region} is taken for {kind} since {show_moment(since)}. {sentence}",
        runbook="runbooks/regional-failover.md",
        names=(region,),
    )


def region_fenced(region: str) -> HealthFinding:
    return HealthFinding(
        code=FindingCode.REGION_FENCED,
        sentence=f"{region} is fenced and takes nothing until its recovery opens it again.",
        runbook="runbooks/failback.md",
        names=(region,),
    )


def region_lease_lapsed(region: str, since: datetime) -> HealthFinding:
    return HealthFinding(
        code=FindingCode.REGION_LEASE_LAPSED,
        sentence=f"The lease of {region} lapsed at {show_moment(since)}: it takes nothing "
        "new until a worker that reaches both the region and the global side renews it.",
        runbook="runbooks/worker-down.md",
        names=(region,),
    )


def temporal_unreachable(why: str) -> HealthFinding:
    return HealthFinding(
        code=FindingCode.TEMPORAL_UNREACHABLE,
        sentence=f"Workflows could not be checked: {why.rstrip('.')}.",
        runbook="runbooks/temporal-unreachable.md",
    )


def _count(names: Sequence[str], noun: str) -> str:
    return f"1 {noun} is" if len(names) == 1 else f"{len(names):,} {noun}s are"


def _them(names: Sequence[str]) -> str:
    return "it" if len(names) == 1 else "them"


def _some(names: Sequence[str]) -> str:
    more = len(names) - NAMES_SHOWN
    return f"{', '.join(names[:NAMES_SHOWN])}{f' and {more:,} more' if more > 0 else ''}"
