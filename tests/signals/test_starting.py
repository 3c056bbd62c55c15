"""More urgent work goes first in Temporal's queues, and tenants take turns."""

import pytest

from durable.model.ids import RegionId, TenantId, WorkloadName
from durable.signals.starting import placement_options, turn_of, workload_options

RISK, API = TenantId("risk"), WorkloadName("api")


@pytest.mark.parametrize(
    ("priority", "key"),
    [(1000, 1), (900, 1), (899, 2), (500, 2), (100, 3), (99, 4), (50, 4), (49, 5), (0, 5)],
)
def test_a_priority_is_one_of_temporals_five(priority: int, key: int) -> None:
    assert turn_of(RISK, priority).priority_key == key


def test_a_tenant_is_the_fairness_key_of_all_its_workflows() -> None:
    started = (
        workload_options(RISK, API),
        placement_options(RISK, API, 1, RegionId("east"), 100),
    )
    assert [options["priority"].fairness_key for options in started] == ["risk", "risk"]
