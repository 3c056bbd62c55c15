"""A claim as its region knows it, for tests that need few of its fields."""

from datetime import UTC, datetime, timedelta
from typing import Any

from durable.model.ids import NodeId, RegionId, TenantId, WorkloadName
from durable.model.placement.claims import RegionalClaim
from durable.model.states import ReservationState

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


def a_claim(slot: int = 0, **fields: Any) -> RegionalClaim:
    given: dict[str, Any] = {
        "region": RegionId("us-east"), "token": slot + 1, "tenant": TenantId("risk"),
        "workload": WorkloadName("api"), "generation": 1, "slot": slot, "attempt": 1,
        "node": NodeId("n1"), "cpu_millis": 1000, "memory_mib": 1024, "gpus": 0, "devices": (),
        "policy_revision": 1, "reservation": ReservationState.BOUND, "reserved_at": NOON,
        "expires_at": NOON + timedelta(minutes=1), "created_version": 1, "read_at": NOON,
        "state": None, "freed_version": None, "started_at": None, "stop_requested_at": None,
        "observer": None, "evidence": "", "log_directory": None, "since": None, "exit_code": None,
        "is_marked": False, "lease_epoch": None, "lease_expires_at": None,
    }  # fmt: skip
    return RegionalClaim(**{**given, **fields})
