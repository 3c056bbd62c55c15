"""The example fleet has the shape that the demo and the documents rely on."""

from pathlib import Path

import pytest

from durable.cli.input.manifests import load_manifest
from durable.model.fleet.labels import LabelKey
from durable.model.fleet.manifest import Fleet
from durable.model.policy.policy import Policy
from durable.model.resources import ZERO, Resources
from durable.scheduling.policies import first_policy, policy_problems

EXAMPLE = Path(__file__).parents[1] / "examples" / "fleet.yaml"


@pytest.fixture(scope="module")
def example() -> Fleet:
    [fleet] = load_manifest(EXAMPLE, Fleet)
    return fleet


def test_the_example_fleet_has_three_regions_of_three_zones_and_three_shapes(
    example: Fleet,
) -> None:
    assert [region.id for region in example.regions] == ["us-east", "us-west", "eu-central"]
    assert [tenant.id for tenant in example.tenants] == [
        "risk",
        "billing",
        "search",
        "fraud",
        "analytics",
    ]
    for region in example.regions:
        assert len(region.zones) == 3
        shapes = {pool.labels.get(LabelKey("shape")) for pool in region.pools}
        assert {"general", "memory", "gpu"} <= shapes
        assert 30 <= sum(pool.count for pool in region.pools) <= 40
    assert {node.capacity.gpus for node in example.nodes() if node.pool.startswith("gpu")} == {4}


def test_the_example_grants_fit_beside_the_recovery_headroom(example: Fleet) -> None:
    for region in example.regions:
        assert region.recovery_headroom is not None
        granted = sum((tenant.grants[region.id] for tenant in example.tenants), start=ZERO)
        assert (granted + region.recovery_headroom.resources).fits_in(region.capacity)


def test_losing_a_region_of_the_example_leaves_room_for_four_risk_replicas(
    example: Fleet,
) -> None:
    replicas = Resources.model_validate({"cpu": 4, "memory": "8Gi"}) * 4
    risk = example.tenants[0]
    assert not risk.protected.is_zero
    for lost in example.regions:
        for region in example.regions:
            if region is not lost:
                assert region.recovery_headroom is not None
                assert replicas.fits_in(region.recovery_headroom.resources)
                assert replicas.fits_in(risk.grants[region.id])


@pytest.mark.parametrize(
    "path", sorted((EXAMPLE.parent / "policies").glob("*.yaml")), ids=lambda one: one.stem
)
def test_an_example_policy_can_be_published_and_differs_from_the_shipped_one(path: Path) -> None:
    (policy,) = load_manifest(path, Policy, policy_problems)
    assert policy != first_policy()
