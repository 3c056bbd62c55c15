"""The objects of the state model refuse what could not be true of them."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from durable.model.fleet.capacity import Node, RegionStatus
from durable.model.placement.request import SchedulingRequest
from durable.model.work.workload import AdmittedWorkload

T0 = datetime(2030, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)

REQUEST: dict[str, Any] = {
    "region": "us-east", "tenant": "risk", "workload": "api", "generation": 1, "slots": [0, 1],
    "priority": 100, "state": "pending", "pending": {"code": "queued"}, "enqueued_at": T0,
    "deadline": T0 + HOUR, "spec": {"replicas": 2, "resources": {"cpu": 1}},
}  # fmt: skip

WORKLOAD: dict[str, Any] = {
    "tenant": "risk", "workload": "api", "generation": 2,
    "spec": {"replicas": 4, "resources": {"cpu": "500m", "memory": "1Gi"}},
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "sound", "flaw", "tells"),
    [
        (SchedulingRequest, REQUEST, {"pending": None}, "pending"),
        (SchedulingRequest, REQUEST, {"deadline": T0}, "deadline"),
        (SchedulingRequest, REQUEST, {"slots": [1, 1]}, "slots"),
        (
            AdmittedWorkload,
            WORKLOAD,
            {"spec": {"replicas": -1, "resources": {"cpu": 1}}},
            "replicas",
        ),
        (AdmittedWorkload, WORKLOAD, {"surprise": 1}, "surprise"),
    ],
)
def test_what_could_not_be_true_is_refused(
    kind: type[Any], sound: dict[str, Any], flaw: dict[str, Any], tells: str
) -> None:
    assert kind(**sound) == kind(**sound)
    with pytest.raises(ValidationError) as caught:
        kind(**{**sound, **flaw})
    assert tells in str(caught.value)


@pytest.mark.parametrize(
    ("change", "takes"),
    [
        ({}, True),
        ({"state": "unknown"}, False),
        ({"cordon_reason": "disk", "cordoned_by": "alice"}, False),
        ({"lease_epoch": 1}, False),
        ({"lease_epoch": None, "lease_expires_at": None}, False),
        ({"lease_expires_at": T0}, False),
    ],
)
def test_a_node_takes_work_when_it_is_ready_and_trusted(
    change: dict[str, Any], takes: bool
) -> None:
    sound: dict[str, Any] = {
        "region": "us-east", "node": "n1", "zone": "a", "pool": "general",
        "capacity": {"cpu": 8}, "used": {"cpu": 0}, "devices": [], "labels": {}, "taints": [],
        "dedicated_to": None, "state": "ready", "cordon_reason": None, "cordoned_by": None,
        "lease_epoch": 2, "lease_expires_at": T0 + HOUR,
    }  # fmt: skip
    region = RegionStatus.model_validate(
        {"region": "us-east", "epoch": 2, "version": 9, "state": "open"}
    )
    assert Node.model_validate({**sound, **change}).takes_work(region, T0) is takes
