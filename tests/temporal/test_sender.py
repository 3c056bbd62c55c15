"""To whom a message goes, and what is refused before it is sent."""

import pytest

from durable.model.fleet.drain import NodesKind, NodesTarget
from durable.model.ids import NodeId, OverrideId, RegionId, TenantId, WorkloadName, ZoneId
from durable.model.recovery.recoveries import RecoveryKey
from durable.model.refusal import RefusalCode, RefusedError
from durable.signals.names import OVERRIDE, PLACEMENT, placement_id
from durable.temporal.sender import Target, find_message, read_payload, receiver_of

EAST = RegionId("east")
WHO = {"actor": "ann", "reason": "INC-1", "request_id": "r-1"}
KEYS: list[Target] = [
    (TenantId("risk"), WorkloadName("api")),
    NodesTarget.of_node(EAST, NodeId("node-7")),
    NodesTarget(region=EAST, kind=NodesKind.ZONE, name=ZoneId("east-a")),
    OverrideId("o-1"),
    RecoveryKey(region=EAST, epoch=2),
    5,
]


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_a_workflow_is_found_by_its_key_and_by_its_id(key: Target) -> None:
    by_key = receiver_of(key)
    by_id = receiver_of(by_key.id)
    assert (by_id.id, by_id.kind, by_id.workload) == (by_key.id, by_key.kind, by_key.workload)
    assert by_key.options is not None, "it is started where it does not run"


def test_a_placement_is_asked_only_while_it_runs() -> None:
    id = placement_id(TenantId("risk"), WorkloadName("api"), 1, EAST)
    assert (receiver_of(id).kind, receiver_of(id).options) == (PLACEMENT, None)


@pytest.mark.parametrize("id", ["", "api", "policy/next", "drain/east", "override/O 1", "job/1"])
def test_what_is_no_workflow_of_ours_is_refused(id: str) -> None:
    with pytest.raises(RefusedError) as no:
        receiver_of(id)
    assert no.value.refusal.code is RefusalCode.INVALID


def test_a_payload_is_read_by_the_row_of_its_message() -> None:
    extend = find_message(OVERRIDE, "extend")
    assert read_payload(extend, {**WHO, "by": "30m"}).request_id == "r-1"
    with pytest.raises(RefusedError, match="by: "):
        read_payload(extend, {**WHO, "by": "soon"})
    with pytest.raises(RefusedError, match="send one of propose, approve"):
        find_message(OVERRIDE, "look")
