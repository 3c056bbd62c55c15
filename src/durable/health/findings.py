"""What is wrong, in sentences: what it means, what to do next, and the runbook that says more."""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum

from durable.validation.text import show_moment
from durable.validation.value import Value

NAMES_SHOWN = 3


class FindingCode(StrEnum):
    """For programs; the sentence is for people."""

    WORKFLOWS_MISSING = "workflows_missing"
    WORKLOADS_UNMANAGED = "workloads_unmanaged"
    PLACEMENTS_MISSING = "placements_missing"
    WORKFLOWS_FAILING = "workflows_failing"
    CLAIMS_OVERDUE = "claims_overdue"
    DISK_FULL = "disk_full"
    QUEUE_UNSERVED = "queue_unserved"
    WORKER_SILENT = "worker_silent"
    REGION_WITHOUT_NODES = "region_without_nodes"
    REGION_IMPAIRED = "region_impaired"
    REGION_FENCED = "region_fenced"
    REGION_LEASE_LAPSED = "region_lease_lapsed"
    CLOCK_JUMPED = "clock_jumped"
    REGION_UNREACHABLE = "region_unreachable"
    REGION_WENT_BACK = "region_went_back"
    AUTHORITY_WENT_BACK = "authority_went_back"
    TEMPORAL_UNREACHABLE = "temporal_unreachable"


_COMES_BACK = (
    "Nothing that fails there is replaced meanwhile. The global worker starts what is missing "
    "within a minute; `durable reconcile` does so at once."
)
# By code: the runbook, and the sentence. {0} is the first name that it is about; {count}, {s},
# {are} and {them} speak of all of them, and {some} lists the first.
_FINDINGS: Mapping[FindingCode, tuple[str, str]] = {
    FindingCode.WORKFLOWS_MISSING: (
        "temporal-lost",
        "Workflows are missing: Temporal runs none for the {count:,} workload{s} that the "
        "authority wants, as if its database had been lost. What serves keeps serving, and nothing "
        "that fails is replaced. The global worker starts them again within a minute; `durable "
        "reconcile` does so at once.",
    ),
    FindingCode.WORKLOADS_UNMANAGED: (
        "temporal-lost",
        "{count:,} workload{s} {are} wanted, but no workflow manages {them}: {some}. "
        + _COMES_BACK,
    ),
    FindingCode.PLACEMENTS_MISSING: (
        "temporal-lost",
        "{count:,} placement{s} {are} wanted, but no workflow runs for {them}: {some}. "
        + _COMES_BACK,
    ),
    FindingCode.WORKFLOWS_FAILING: (
        "workflow-stuck",
        "The tasks of {count:,} workflow{s} fail again and again, and nothing that was sent to "
        "{them} is answered: {some}.",
    ),
    FindingCode.CLAIMS_OVERDUE: (
        "worker-down",
        "{count:,} reservation{s} in {0} {are} held past expiry, the oldest since {since}: that "
        "capacity is of no use to others until the region's worker frees it.",
    ),
    FindingCode.DISK_FULL: (
        "disk-full",
        "The disk of {part} is full: {0} has {free_mib:.1f} MiB left. Free some space there, and "
        "everything continues by itself.",
    ),
    FindingCode.QUEUE_UNSERVED: (
        "worker-down",
        "No worker serves {whom}: nothing {is_done} until one polls {0}.",
    ),
    FindingCode.WORKER_SILENT: (
        "worker-down",
        "Workers that began to serve give no sign of life: {some}. What they have taken up waits "
        "until it times out. If such a process hangs, end it with SIGKILL and start it again.",
    ),
    FindingCode.REGION_WITHOUT_NODES: (
        "worker-down",
        "No node of {0} has a live lease (of {nodes:,}): nothing can be placed there; check that "
        "an agent runs.",
    ),
    FindingCode.REGION_UNREACHABLE: (
        "stack",
        "The database of {0} is unreachable, so nothing changes there. {why}",
    ),
    FindingCode.REGION_IMPAIRED: (
        "regional-failover",
        "{0} is taken for {kind} since {since}. {why}",
    ),
    FindingCode.REGION_FENCED: (
        "failback",
        "{0} is fenced and takes nothing until its recovery opens it again.",
    ),
    FindingCode.REGION_LEASE_LAPSED: (
        "worker-down",
        "The lease of {0} lapsed at {since}: it takes nothing new until a worker that reaches both "
        "the region and the global side renews it.",
    ),
    FindingCode.CLOCK_JUMPED: (
        "clock-jump",
        "The clock of {0}'s database went back ({since} by that clock), so its lease counts for "
        "nothing: it takes nothing new until a worker that reaches both the region and the global "
        "side renews it. Check the time service of that machine.",
    ),
    FindingCode.REGION_WENT_BACK: (
        "region-restored",
        "Nothing is changed in {some} since {since}: {why}",
    ),
    FindingCode.AUTHORITY_WENT_BACK: (
        "authority-restored",
        "Nothing is changed on the global side, nor in a region beside it, since {since}: {why}",
    ),
    FindingCode.TEMPORAL_UNREACHABLE: (
        "temporal-unreachable",
        "Workflows could not be checked: {why}.",
    ),
}


class HealthFinding(Value):
    """One thing that is wrong; while there is one, a placement may not go through."""

    code: FindingCode
    sentence: str
    runbook: str
    # The workflows, regions or paths that it is about.
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.sentence} See {self.runbook}."


def finding(
    code: FindingCode, *names: str, causes: Mapping[str, str] | None = None, **values: object
) -> HealthFinding:
    """What is wrong with these; `causes` are put behind their names."""
    runbook, sentence = _FINDINGS[code]
    count = values.get("count", len(names))
    named = [f"{name} ({causes[name]})" for name in names] if causes else names
    more = len(names) - NAMES_SHOWN
    words = {
        "count": count,
        "s": "" if count == 1 else "s",
        "are": "is" if count == 1 else "are",
        "them": "it" if count == 1 else "them",
        "some": ", ".join(named[:NAMES_SHOWN]) + (f" and {more:,} more" if more > 0 else ""),
    }
    shown = {
        name: show_moment(value) if isinstance(value, datetime) else value
        for name, value in values.items()
    }
    return HealthFinding(
        code=code,
        sentence=sentence.format(*names, **words | shown),
        runbook=f"runbooks/{runbook}.md",
        names=names,
    )
