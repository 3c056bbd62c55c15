"""What an operator reads on the page of a workflow."""

import re
from datetime import UTC, datetime

from durable.model.ids import NodeId, RegionId, TenantId, WorkloadName
from durable.model.placement.pending import Pending
from durable.model.placement.pending_reasons import PendingCode
from durable.model.work.phases import Owner, PlacementPhase, SlotPhase, WorkloadPhase
from durable.model.work.workload import WorkloadSpec
from durable.reports.describe import Status, describe
from durable.signals.payloads import EvictSlots
from durable.signals.status import (
    PlacementStatus,
    RegionProgress,
    SlotView,
    WorkloadStatus,
)
from tests.model.pending import pending

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
GRANT = pending(PendingCode.GRANT, "Tenant risk has no grant left.")


def page_of(status: Status) -> str:
    return describe(status, NOON).as_markdown("ui-1")


def placement(*slots: SlotView, why: Pending = GRANT) -> PlacementStatus:
    return PlacementStatus(
        region=RegionId("east"),
        tenant=TenantId("risk"),
        workload=WorkloadName("api"),
        generation=1,
        phase=PlacementPhase.WAITING,
        pending=why,
        owner=Owner.SCHEDULER,
        next_retry_at=NOON,
        placed_by=NOON,
        attempts=1,
        policy_revision=7,
        slots=slots,
        rejected=(),
        rejected_count=0,
        messages=0,
    )


def slot(number: int, phase: SlotPhase = SlotPhase.SERVING) -> SlotView:
    return SlotView(slot=number, phase=phase, attempt=1, token=1, node=NodeId("node-1"), since=NOON)


def test_a_wait_shows_its_reason_its_owner_and_when_it_is_tried_again() -> None:
    page = page_of(placement(slot(0), slot(1, SlotPhase.STARTING)))
    assert f"**waiting**; next: {Owner.SCHEDULER}" in page
    assert "(grant, may resolve on its own): Tenant risk has no grant left." in page
    assert "Next try: 2026-01-01 12:00:00Z" in page
    assert "- 0: **serving** on node-1 since 12:00:00Z\n- 1: **starting** on node-1" in page


def test_every_message_is_listed_with_its_sentence_and_an_example() -> None:
    page = page_of(placement())
    for name, sentence in (
        ("retry_now", "Try to place what waits now instead of at the end of the backoff."),
        (
            "evict",
            "Stop slots (all if none is named) and place them again, within the disruption "
            "allowance unless forced.",
        ),
    ):
        right = f"Needs the right `{name.removesuffix('_now')}`."
        assert f'- `{name}`: {sentence} {right} `{{"actor": "person:alice"' in page


def test_lists_are_apart_from_what_surrounds_them() -> None:
    lines = page_of(placement(slot(0))).splitlines()
    first = lines.index("- 0: **serving** on node-1 since 12:00:00Z")
    assert lines[first - 1] == lines[first + 1] == ""


def test_pages_link_to_each_other_in_whichever_namespace() -> None:
    page = page_of(placement(slot(0)))
    assert "[workload/risk/api](/namespaces/{namespace}/workflows/workload%2Frisk%2Fapi)" in page
    assert "policy revision 7" in page


def test_examples_name_a_slot_that_exists_and_a_fresh_request_id() -> None:
    page = page_of(placement(slot(3), slot(4)))
    evict = re.search(r"- `evict`: .*?`({.*})`", page)
    assert evict is not None
    payload = EvictSlots.model_validate_json(evict[1])
    assert (payload.slots, payload.request_id) == ((3,), "ui-1-evict")


def test_what_others_wrote_has_no_effect_on_the_page() -> None:
    reason = "[free](http://evil.example) <b>now</b>\n# Done"
    page = page_of(placement(why=pending(PendingCode.GRANT, reason)))
    assert r"\[free\](http://evil.example) \<b\>now\</b\> # Done" in page


def test_a_workload_shows_a_regions_wait_once_and_where_to_look() -> None:
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
        phase=WorkloadPhase.PROGRESSING,
        wanted=2,
        bound=1,
        ready=1,
        serving=1,
        regions=(region,),
        conditions=(),
        spec=WorkloadSpec.model_validate({"replicas": 2, "resources": {"cpu": 1}}),
        completed=0,
        deleting=False,
        own_waits=("An old claim is live.",),
    )
    page = page_of(status)
    assert page.count("No room.") == 1
    assert "- east: 1 serving, 1 ready, 1 bound of 2; next: [placement/risk/api/g1/east](/" in page
    assert "### Waits\n\n- An old claim is live." in page
