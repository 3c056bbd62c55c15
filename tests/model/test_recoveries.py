"""Which loss a workflow's id names."""

import pytest

from durable.model.ids import RegionId
from durable.model.recovery.recoveries import RecoveryKey


def test_the_id_of_a_recovery_names_its_region_and_epoch() -> None:
    key = RecoveryKey(region=RegionId("us-east"), epoch=12)
    assert RecoveryKey.of_id(str(key)) == key


@pytest.mark.parametrize(
    "id",
    [
        "",
        "recovery",
        "recovery/us-east",
        "recovery/us-east/",
        "recovery//2",
        "recovery/us-east/1",
        "recovery/us-east/02",
        "recovery/us-east/9223372036854775808",
        "recovery/us-east/two",
        "recovery/us/east/2",
        "recovery/US-EAST/2",
        "policy/us-east/2",
    ],
)
def test_any_other_id_names_none(id: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        RecoveryKey.of_id(id)
