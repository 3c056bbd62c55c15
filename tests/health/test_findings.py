"""What is wrong, in sentences that say what to do next."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from durable.health import findings
from durable.health.findings import HealthFinding

ROOT = Path(__file__).parents[2]
AT = datetime(2026, 5, 1, 12, tzinfo=UTC)

CASES = [
    (
        findings.workloads_unmanaged(["risk/api", "risk/web"], 2),
        "workflows_missing",
        "Temporal runs none for any of the 2 workloads that the authority wants",
    ),
    (
        findings.workloads_unmanaged(["risk/api"], 2),
        "workloads_unmanaged",
        "1 workload is wanted, but no workflow manages it: risk/api. Nothing that fails there is "
        "replaced meanwhile. The global worker starts what is missing within a minute; `durable "
        "reconcile` does so at once.",
    ),
    (
        findings.placements_missing([f"placement/risk/api/g1/r{n}" for n in range(5)]),
        "placements_missing",
        "placement/risk/api/g1/r0, placement/risk/api/g1/r1, placement/risk/api/g1/r2 and 2 more.",
    ),
    (
        findings.workflows_failing({"workload/risk/api": "non deterministic error"}),
        "workflows_failing",
        "1 workflow fails its tasks again and again, and nothing that was sent to it is answered: "
        "workload/risk/api (non deterministic error).",
    ),
    (
        findings.claims_overdue("east", 2, AT),
        "claims_overdue",
        "2 reservations in east are held past expiry, the oldest since 2026-05-01 12:00:00Z",
    ),
    (
        findings.disk_full("PostgreSQL", Path("/data/postgres"), 3 * 2**20 // 2),
        "disk_full",
        "The disk of PostgreSQL is full: /data/postgres has 1.5 MiB left.",
    ),
    (
        findings.queue_unserved("durable-region-east", "east"),
        "queue_unserved",
        "No worker serves east: nothing is placed or replaced there until one polls "
        "durable-region-east.",
    ),
    (
        findings.queue_unserved("durable-global", None),
        "queue_unserved",
        "No worker serves workloads: nothing can be applied, scaled or deleted",
    ),
    (
        findings.region_without_nodes("east", 3),
        "region_without_nodes",
        "No node of east has a live lease (of 3)",
    ),
    (
        findings.region_impaired("east", "zone lost", "The nodes of east-a fell silent.", AT),
        "region_impaired",
        "east is taken for zone lost since 2026-05-01 12:00:00Z. The nodes of east-a fell silent.",
    ),
    (findings.region_fenced("east"), "region_fenced", "east is fenced and takes nothing until"),
    (
        findings.region_lease_lapsed("east", AT),
        "region_lease_lapsed",
        "The lease of east lapsed at 2026-05-01 12:00:00Z: it takes nothing new until",
    ),
    (
        findings.region_unreachable("west", "PostgreSQL at host:5432 did not answer."),
        "region_unreachable",
        "The database of west is out of reach, so nothing changes there. PostgreSQL at",
    ),
    (
        findings.temporal_unreachable("Temporal at x does not answer."),
        "temporal_unreachable",
        "Workflows could not be checked: Temporal at x does not answer.",
    ),
]


@pytest.mark.parametrize(("found", "code", "said"), CASES, ids=[case[1] for case in CASES])
def test_a_finding_says_what_is_wrong_and_names_a_runbook(
    found: HealthFinding, code: str, said: str
) -> None:
    assert found.code == code
    assert said in found.sentence
    assert (ROOT / found.runbook).is_file()
    assert str(found).endswith(f"See {found.runbook}.")
