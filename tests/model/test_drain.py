"""What keeps the rest of a drain: one reason for each workload, what needs somebody first."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable.model.fleet.drain import (
    DrainProgress,
    LeftCode,
    LeftFacts,
    NodesKind,
    NodesTarget,
    measure_progress,
)
from durable.model.ids import Identifier, NodeId, RegionId, TenantId, WorkloadName
from durable.model.placement.claims import RegionalClaim
from durable.model.placement.pending import Pending
from durable.model.placement.pending_reasons import NoGrant, PendingCode
from durable.model.states import BindingState
from durable.model.time_left import TimeLeft
from durable.signals.names import drain_id
from tests.claims import NOON, a_claim

EAST = RegionId("us-east")
SERVES = a_claim(state=BindingState.SERVING)
STOPS = a_claim(state=BindingState.SERVING, stop_requested_at=NOON)
RUNS = a_claim(state=BindingState.RUNNING, is_job=True)
LOST = a_claim(state=BindingState.UNKNOWN)
QUEUED = Pending(code=PendingCode.QUEUED)
NEVER = Pending.because(PendingCode.NO_GRANT, NoGrant(tenant=TenantId("risk"), region=EAST))


def facts(*replicas: RegionalClaim, workload: str = "api", **fields: Any) -> LeftFacts:
    given: dict[str, Any] = {"serving": 4, "must_serve": 3, **fields}
    name = {"tenant": TenantId("risk"), "workload": WorkloadName(workload)}
    return LeftFacts(replicas=replicas, **name, **given)


def measure(*given: LeftFacts, wait_for_jobs: bool = False) -> DrainProgress:
    return measure_progress(given, wait_for_jobs=wait_for_jobs, deadline_in=TimeLeft(seconds=60))


@pytest.mark.parametrize(
    ("left", "waits", "code"),
    [
        (facts(SERVES), False, LeftCode.REPLACING),
        (facts(SERVES, STOPS), False, LeftCode.REPLACING),
        (facts(STOPS), False, LeftCode.STOPPING),
        (facts(STOPS, pending=QUEUED), False, LeftCode.STOPPING),
        (facts(SERVES, pending=QUEUED), False, LeftCode.NO_ROOM),
        (facts(SERVES, pending=NEVER), False, LeftCode.NO_ROOM),
        (facts(SERVES, serving=3), False, LeftCode.ALLOWANCE),
        (facts(SERVES, serving=3, coming_up=1), False, LeftCode.REPLACING),
        (facts(SERVES, serving=3, pending=QUEUED), False, LeftCode.NO_ROOM),
        (facts(a_claim(), serving=3), False, LeftCode.REPLACING),
        (facts(LOST), False, LeftCode.NODE_SILENT),
        (facts(LOST, SERVES), False, LeftCode.REPLACING),
        (facts(RUNS, serving=0, must_serve=0), False, LeftCode.REPLACING),
        (facts(RUNS, serving=0, must_serve=0), True, LeftCode.JOB),
        (facts(RUNS, pending=QUEUED), True, LeftCode.JOB),
    ],
)
def test_each_workload_has_one_reason(left: LeftFacts, waits: bool, code: LeftCode) -> None:
    [found] = measure(left, wait_for_jobs=waits).workloads
    assert found.code is code
    assert found.sentence


def test_what_needs_somebody_comes_first_and_what_moves_comes_last() -> None:
    progress = measure(
        facts(SERVES, SERVES, workload="moves"),
        facts(SERVES, serving=3, workload="floor"),
        facts(SERVES, pending=NEVER, workload="never"),
        facts(SERVES, SERVES, pending=QUEUED, workload="queued"),
    )
    names = [str(one.workload) for one in progress.workloads]
    assert names == ["never", "queued", "floor", "moves"]
    assert [one.workload for one in progress.blocked] == names[:3]
    assert progress.left == 6
    waits = progress.waits_for or ""
    assert waits.startswith("risk/never (1 replica): its replacement finds no place (a person must")
    assert waits.endswith("; and 3 more")
    assert measure().waits_for is None


@given(st.lists(st.integers(1, 5), max_size=80))
def test_every_replica_is_counted_however_few_workloads_are_shown(sizes: list[int]) -> None:
    given = [facts(*[SERVES] * size, workload=f"w{at}") for at, size in enumerate(sizes)]
    progress = measure(*given)
    assert progress.left == sum(sizes)
    assert len(progress.workloads) == min(50, len(sizes))


@pytest.mark.parametrize(
    ("kind", "name", "id"),
    [
        (NodesKind.NODE, "n1", "drain/us-east/n1"),
        (NodesKind.ZONE, "us-east-a", "drain/us-east/zone/us-east-a"),
        (NodesKind.POOL, "general", "drain/us-east/pool/general"),
    ],
)
def test_a_drain_is_called_by_its_region_and_its_nodes(kind: NodesKind, name: str, id: str) -> None:
    assert drain_id(NodesTarget(region=EAST, kind=kind, name=Identifier(name))) == id


def test_one_node_is_meant_by_its_name() -> None:
    target = NodesTarget.of_node(EAST, NodeId("n1"))
    assert (target.short, str(target)) == ("n1", "node n1 of us-east")
