"""A plan counts slots in a table, and names nodes only where something changes."""

import pytest

from durable.cli.render.plan import print_plan
from durable.model.ids import NodeId, RegionId, TenantId, WorkloadName
from durable.model.placement.claims import SlotOnNode
from durable.model.placement.pending_reasons import PendingCode
from durable.plan.planner import Plan, RegionPlan
from durable.plan.step import Action
from tests.model.pending import pending


def on_nodes(count: int) -> tuple[SlotOnNode, ...]:
    return tuple(SlotOnNode(slot=slot, node=NodeId(f"n{slot}")) for slot in range(count))


def printed(capsys: pytest.CaptureFixture[str], action: Action, region: RegionPlan) -> list[str]:
    plan = Plan(
        tenant=TenantId("shop"),
        workload=WorkloadName("web"),
        generation=2,
        action=action,
        regions=(region,),
    )
    print_plan(plan)
    return [line.strip() for line in capsys.readouterr().out.splitlines() if line.strip()]


def test_what_stays_is_only_counted(capsys: pytest.CaptureFixture[str]) -> None:
    region = RegionPlan(region=RegionId("north"), keeps=on_nodes(3))
    lines = printed(capsys, Action.NOTHING, region)
    assert lines[0] == "shop/web: no change, generation 2"
    assert "north   3      0       0      0" in lines
    assert lines[-1] == "An apply would change nothing."
    assert "n0" not in str(lines)


def test_what_changes_is_named_with_its_nodes_and_reason(
    capsys: pytest.CaptureFixture[str],
) -> None:
    wait = pending(PendingCode.CAPACITY, "No node has room.")
    region = RegionPlan(region=RegionId("north"), places=on_nodes(8), waits=(8,), pending=wait)
    lines = printed(capsys, Action.SCALE, region)
    assert "Places: 0 on n0, 1 on n1, 2 on n2, 3 on n3, 4 on n4, 5 on n5 and 2 more" in lines
    assert "Waits: No node has room. (capacity)" in lines
