"""What is wrong, in sentences that say what to do next."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from durable.health.findings import FindingCode as Code
from durable.health.findings import HealthFinding, finding

ROOT = Path(__file__).parents[2]
AT = datetime(2026, 5, 1, 12, tzinfo=UTC)
API = "workload/risk/api"

CASES = [
    (
        finding(Code.WORKFLOWS_MISSING, "risk/api", "risk/web"),
        "Temporal runs none for the 2 workloads that the authority wants",
    ),
    (
        finding(Code.WORKLOADS_UNMANAGED, "risk/api"),
        "1 workload is wanted, but no workflow manages it: risk/api. Nothing that fails there is "
        "replaced meanwhile. The global worker starts what is missing within a minute; `durable "
        "reconcile` does so at once.",
    ),
    (
        finding(Code.PLACEMENTS_MISSING, *(f"placement/risk/api/g1/r{n}" for n in range(5))),
        "5 placements are wanted, but no workflow runs for them: placement/risk/api/g1/r0, "
        "placement/risk/api/g1/r1, placement/risk/api/g1/r2 and 2 more.",
    ),
    (
        finding(Code.WORKFLOWS_FAILING, API, causes={API: "non deterministic error"}),
        "The tasks of 1 workflow fail again and again, and nothing that was sent to it is "
        "answered: workload/risk/api (non deterministic error).",
    ),
    (
        finding(Code.CLAIMS_OVERDUE, "east", count=2, since=AT),
        "2 reservations in east are held past expiry, the oldest since 2026-05-01 12:00:00Z",
    ),
    (
        finding(Code.DISK_FULL, "/data/postgres", part="PostgreSQL", free_mib=1.5),
        "The disk of PostgreSQL is full: /data/postgres has 1.5 MiB left.",
    ),
    (
        finding(Code.QUEUE_UNSERVED, "durable-region-east", whom="east", is_done="is placed there"),
        "No worker serves east: nothing is placed there until one polls durable-region-east.",
    ),
    (
        finding(Code.QUEUE_UNSERVED, "durable-global", whom="workloads", is_done="can be applied"),
        "No worker serves workloads: nothing can be applied until one polls durable-global.",
    ),
    (
        finding(Code.WORKER_SILENT, "17@host", "18@host"),
        "Workers that began to serve give no sign of life: 17@host, 18@host. What they have taken",
    ),
    (
        finding(Code.REGION_WITHOUT_NODES, "east", nodes=3),
        "No node of east has a live lease (of 3)",
    ),
    (
        finding(Code.REGION_IMPAIRED, "east", kind="zone lost", why="It fell silent.", since=AT),
        "east is taken for zone lost since 2026-05-01 12:00:00Z. It fell silent.",
    ),
    (finding(Code.REGION_FENCED, "east"), "east is fenced and takes nothing until"),
    (
        finding(Code.REGION_LEASE_LAPSED, "east", since=AT),
        "The lease of east lapsed at 2026-05-01 12:00:00Z: it takes nothing new until",
    ),
    (
        finding(Code.CLOCK_JUMPED, "east", since=AT),
        "The clock of east's database went back (2026-05-01 12:00:00Z by that clock)",
    ),
    (
        finding(Code.REGION_UNREACHABLE, "west", why="PostgreSQL at host:5432 did not answer."),
        "The database of west is unreachable, so nothing changes there. PostgreSQL at",
    ),
    (
        finding(Code.REGION_WENT_BACK, "west", since=AT, why="it was restored."),
        "Nothing is changed in west since 2026-05-01 12:00:00Z: it was restored.",
    ),
    (
        finding(Code.AUTHORITY_WENT_BACK, "global", "east", since=AT, why="it was restored."),
        "Nothing is changed on the global side, nor in a region beside it, since 2026-05-01",
    ),
    (
        finding(Code.TEMPORAL_UNREACHABLE, why="Temporal at x does not answer"),
        "Workflows could not be checked: Temporal at x does not answer.",
    ),
]


def test_every_code_has_its_sentence() -> None:
    assert {found.code for found, _ in CASES} == set(Code)


@pytest.mark.parametrize(("found", "said"), CASES, ids=[case[0].code for case in CASES])
def test_a_finding_says_what_is_wrong_and_names_a_runbook(found: HealthFinding, said: str) -> None:
    assert said in found.sentence
    assert (ROOT / found.runbook).is_file()
    assert str(found).endswith(f"See {found.runbook}.")
