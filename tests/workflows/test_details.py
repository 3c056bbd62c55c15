"""What an operator reads on the page of a workflow."""

from datetime import UTC, datetime

from durable.model.ids import NodeId, RegionId, TenantId, WorkloadName
from durable.model.pending_reasons import PendingCode
from durable.model.workload import WorkloadSpec
from durable.signals.status import (
    Owner,
    Phase,
    PlacementStatus,
    RegionProgress,
    SlotView,
    WorkloadStatus,
)
from durable.workflows.details import placement_details, workload_details
from tests.model.pending import pending

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
GRANT = pending(PendingCode.GRANT, "Tenant risk has no grant left.")


def placement(*slots: SlotView, held_by: str | None = None) -> PlacementStatus:
    return PlacementStatus(
        region=RegionId("east"),
        tenant=TenantId("risk"),
        workload=WorkloadName("api"),
        generation=1,
        phase="waiting",
        pending=GRANT,
        owner=Owner.SCHEDULER,
        next_retry_at=NOON,
        placed_by=NOON,
        held_by=held_by,
        attempts=1,
        slots=slots,
        rejected=(),
        rejected_in_all=0,
        messages=0,
    )


def slot(number: int, phase: Phase = Phase.SERVING) -> SlotView:
    return SlotView(slot=number, phase=phase, attempt=1, token=1, node=NodeId("node-1"), since=NOON)


def test_a_wait_tells_its_reason_its_owner_and_when_somebody_looks_again() -> None:
    told = placement_details(placement(slot(0), slot(1, Phase.STARTING)))
    assert f"**waiting**; next: {Owner.SCHEDULER}" in told
    assert "(grant, it can pass by itself): Tenant risk has no grant left." in told
    assert "Next look: 2026-01-01 12:00:00Z" in told
    assert "- 0: **serving** on node-1 since 12:00:00Z\n- 1: **starting** on node-1" in told


def test_a_hold_is_not_said_to_pass_by_itself() -> None:
    told = placement_details(placement(held_by="ann: INC-42"))
    assert "**Held** by ann: INC-42; nothing new is placed until `resume`." in told
    assert "Next look" not in told
    assert "pass by itself" not in told


def test_every_message_stands_there_with_its_sentence_and_an_example() -> None:
    told = placement_details(placement())
    for name, sentence in (
        ("hold", "Place nothing new until resumed."),
        ("resume", "Go on placing after a hold."),
        ("retry_now", "Look for a place at once."),
        ("evict", "Stop slots and place them again."),
    ):
        assert f'- `{name}`: {sentence} `{{"actor": "alice@example.com"' in told


def test_lists_are_apart_from_what_stands_around_them() -> None:
    lines = placement_details(placement(slot(0))).splitlines()
    first = lines.index("- 0: **serving** on node-1 since 12:00:00Z")
    assert lines[first - 1] == lines[first + 1] == ""


def test_a_workload_tells_a_regions_wait_once_and_where_to_look() -> None:
    region = RegionProgress(
        region=RegionId("east"),
        wanted=2,
        bound=1,
        ready=1,
        serving=1,
        pending=pending(PendingCode.CAPACITY, "No room."),
    )
    status = WorkloadStatus(
        tenant=TenantId("risk"),
        workload=WorkloadName("api"),
        generation=1,
        observed_generation=1,
        phase="progressing",
        wanted=2,
        bound=1,
        ready=1,
        serving=1,
        regions=(region,),
        conditions=(),
        spec=WorkloadSpec.model_validate({"replicas": 2, "resources": {"cpu": 1}}),
        completed=0,
        deleting=False,
        waits_for=(str(region.waits), "An old claim stands."),
    )
    told = workload_details(status)
    assert told.count("No room.") == 1
    assert "- east: 1 serving, 1 ready, 1 bound of 2; next: `placement/risk/api/g1/east`" in told
    assert "### Waits\n\n- An old claim stands." in told
