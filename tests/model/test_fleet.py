"""A fleet whose names collide, whose references dangle or whose grants are too large is refused."""

from datetime import timedelta
from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from durable.model.fleet.labels import LabelKey, LabelValue
from durable.model.fleet.manifest import Fleet, PoolSpec, Region
from durable.model.resources import Resources
from durable.validation.problems import problems_in
from durable.validation.quantities import Duration, read_duration, show_duration


def pool(**changes: Any) -> dict[str, Any]:
    return {"name": "general", "zone": "east-a", "count": 2, "capacity": {"cpu": 4}} | changes


def region(**changes: Any) -> dict[str, Any]:
    return {"id": "east", "zones": ["east-a", "east-b"], "pools": [pool()]} | changes


def tenant(**changes: Any) -> dict[str, Any]:
    return {"id": "risk", "hard": {"cpu": 8, "memory": "8Gi"}} | changes


def fleet(*regions: dict[str, Any], tenants: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    return {"regions": list(regions) or [region()], "tenants": tenants or [tenant()]}


def sentences_of(data: dict[str, Any]) -> list[str]:
    with pytest.raises(ValidationError) as caught:
        Fleet.model_validate(data)
    return [str(problem) for problem in problems_in(caught.value, Fleet)]


WEST = region(id="west", zones=["west-a"], pools=[pool(zone="west-a")])
HEADROOM = {"id": "spare", "resources": {"cpu": 8}, "expires_in": "30d"}


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (
            fleet(region(), region(zones=["other-a"], pools=[])),
            "field regions[1].id: got 'east' again, first used at regions[0].id; "
            "allowed: every name once",
        ),
        (
            fleet(tenants=[tenant(), tenant()]),
            "field tenants[1].id: got 'risk' again, first used at tenants[0].id; "
            "allowed: every name once",
        ),
        (
            fleet(region(), WEST | {"zones": ["west-a", "east-b"]}),
            "field regions[1].zones[1]: got 'east-b' again, first used at "
            "regions[0].zones[1]; allowed: every name once",
        ),
        (
            fleet(region(pools=[pool(), pool(zone="east-b")])),
            "field regions[0].pools[1].name: got 'general' again, first used at "
            "pools[0].name; allowed: every name once",
        ),
        (
            fleet(region(recovery_headroom=HEADROOM), WEST | {"recovery_headroom": HEADROOM}),
            "field regions[1].recovery_headroom.id: got 'spare' again, first used at "
            "regions[0].recovery_headroom.id; allowed: every name once",
        ),
        (
            fleet(region(pools=[pool(zone="west-a")])),
            "field regions[0].pools[0].zone: got 'west-a'; allowed: a zone of east: east-a, east-b",
        ),
        (
            fleet(region(pools=[pool(dedicated_to="search")])),
            "field regions[0].pools[0].dedicated_to: got 'search'; "
            "allowed: a tenant of this fleet: risk",
        ),
        (
            fleet(tenants=[tenant(grants={"mars": {"cpu": 1}})]),
            "field tenants[0].grants.mars: got 'mars'; allowed: a region of this fleet: east",
        ),
        (
            fleet(tenants=[tenant(protected={"cpu": "8500m", "memory": "8Gi"})]),
            "field tenants[0].protected: got 8500m cpu, 8Gi, which is 500m cpu too much; "
            "allowed: protected capacity within the hard quota of 8 cpu, 8Gi",
        ),
        (
            fleet(
                region(),
                WEST,
                tenants=[
                    tenant(
                        grants={
                            "east": {"cpu": 5, "memory": "8Gi", "gpu": 1},
                            "west": {"cpu": 4, "memory": "512Mi"},
                        }
                    )
                ],
            ),
            "field tenants[0].grants: got 9 cpu, 8704Mi, 1 gpu in all, which is 1 cpu, "
            "512Mi memory, 1 gpu too much; allowed: grants that add up to the hard quota of "
            "8 cpu, 8Gi at most",
        ),
        (
            fleet(region(pools=[pool(count=60_000), pool(name="more", count=1)])),
            "field regions: got 60001 nodes in all; allowed: up to 60000",
        ),
        (
            fleet(region(pools=[pool(capacity={"cpu": 1, "gpu": 65})])),
            "field regions[0].pools[0].capacity: got 65 gpus a node; allowed: up to 64",
        ),
        (
            fleet(region(recovery_headroom=HEADROOM | {"id": "override/spare"})),
            "field regions[0].recovery_headroom.id: got 'override/spare'; "
            "allowed: a name without override/",
        ),
        (
            fleet(region(recovery_headroom=HEADROOM | {"resources": {"cpu": 9}})),
            "field regions[0].recovery_headroom.resources: got 9 cpu, which is 1 cpu too much; "
            "allowed: headroom within the region's capacity of 8 cpu",
        ),
        (
            fleet(
                region(id="eu", zones=["a"], pools=[pool(name="west-gpu", zone="a")]),
                region(id="eu-west", zones=["b"], pools=[pool(name="gpu", zone="b")]),
            ),
            "field regions[1].pools[0].name: its nodes would be called eu-west-gpu-0000 as those "
            "of region eu; allowed: node names that no other region has",
        ),
    ],
)
def test_what_does_not_fit_together_is_reported_at_its_place(
    data: dict[str, Any], sentence: str
) -> None:
    assert sentences_of(data) == [sentence]


def test_a_node_name_that_would_be_too_long_is_refused_before_a_node_is_made() -> None:
    [sentence] = sentences_of(fleet(region(pools=[pool(name="p" * 60)])))
    assert sentence.startswith("field regions[0].pools[0].name: its nodes would be called 'east-p")
    assert sentence.endswith("allowed: node names of up to 63 characters")


def test_every_mistake_is_reported_at_once() -> None:
    data = fleet(
        region(pools=[pool(dedicated_to="nobody")]),
        WEST | {"zones": ["west-a", "east-a"]},
        tenants=[tenant(grants={"mars": {"cpu": 1}})],
    )
    assert len(sentences_of(data)) == 3


@pytest.mark.parametrize(
    "data",
    [
        {"regions": []},
        {"regions": [region(zones=[])]},
        {"regions": [region(pools=[pool(count=-1)])]},
        {"regions": [region(pools=[pool(count="2")])]},
        {"regions": [region(pools=[pool(labels={"Shape": "general"})])]},
        {"regions": [region(pools=[pool(labels={"shape": "a b"})])]},
        {"regions": [region(pools=[pool(labels={f"l{n}": "x" for n in range(33)})])]},
        {"regions": [region(pools=[pool(taints=[{"key": "a", "value": "b", "effect": "no"}])])]},
        {"regions": [region(pools=[pool(taints=[{"key": "a", "value": "b"}])])]},
        {"regions": [region(recovery_headroom=HEADROOM | {"expires_in": 30})]},
        {"regions": [region(size=3)]},
    ],
)
def test_a_part_outside_its_own_grammar_is_refused(data: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Fleet.model_validate(data)


def test_nodes_are_named_by_number_and_carry_what_their_pool_says() -> None:
    gpu = pool(
        name="gpu",
        zone="east-b",
        capacity={"cpu": 8, "memory": "16Gi", "gpu": 2},
        labels={"shape": "gpu"},
        taints=[{"key": "shape", "value": "gpu", "effect": "no-schedule"}],
        dedicated_to="risk",
    )
    made = list(Fleet.model_validate(fleet(region(pools=[pool(), gpu]))).nodes())
    assert [node.id for node in made] == [
        "east-general-0000",
        "east-general-0001",
        "east-gpu-0000",
        "east-gpu-0001",
    ]
    assert made[0].devices == ()
    assert made[0].dedicated_to is None
    assert made[3].devices == ("gpu-0", "gpu-1")
    assert made[3].capacity == Resources.of(8000, 16_384, 2)
    assert made[3].labels == {"shape": "gpu"}
    assert made[3].taints[0].effect == "no-schedule"
    assert made[3].dedicated_to == "risk"
    assert (made[3].region, made[3].zone, made[3].pool) == ("east", "east-b", "gpu")


@given(st.integers(0, 30), st.integers(0, 30))
def test_a_pool_that_grows_renames_no_node(before: int, more: int) -> None:
    def ids(count: int) -> list[str]:
        spec = PoolSpec.model_validate(pool(count=count))
        return [node.id for node in spec.nodes(Region.model_validate(region()).id)]

    assert ids(before + more)[:before] == ids(before)
    assert len(set(ids(before + more))) == before + more


def test_the_largest_fleet_has_as_many_names_as_nodes() -> None:
    whole = Fleet.model_validate(fleet(region(pools=[pool(count=60_000)])))
    assert [node.id for node in islice(whole.nodes(), 9_998, 10_002)] == [
        "east-general-9998",
        "east-general-9999",
        "east-general-10000",
        "east-general-10001",
    ]
    assert len({node.id for node in whole.nodes()}) == 60_000


def test_a_fleet_survives_json() -> None:
    whole = Fleet.model_validate(
        fleet(region(recovery_headroom=HEADROOM), tenants=[tenant(grants={"east": {"cpu": 1}})])
    )
    assert Fleet.model_validate_json(whole.model_dump_json()) == whole
    assert Fleet.model_validate(whole.model_dump(mode="json")) == whole
    assert Fleet.model_validate(whole.model_dump()) == whole


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("1s", 1), ("90s", 90), ("5m", 300), ("12h", 43_200), ("30d", 2_592_000)],
)
def test_a_duration_is_read_exactly(written: str, seconds: int) -> None:
    assert read_duration(written) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "written",
    [
        *["", "30", "0s", "-1d", "1.5h", "1 d", "1d\n", "1w", "1D", "01d", "1d12h", "\uff11d"],
        *["3661d", "9" * 11 + "d", "9" * 5000 + "d"],
        *[30, 30.0, True, None, timedelta(0), timedelta(microseconds=1)],
    ],
)
def test_a_duration_that_is_not_whole_or_has_no_unit_is_refused(written: object) -> None:
    with pytest.raises(
        ValidationError, match=r"got .*; allowed: a whole number and one of the units"
    ):
        TypeAdapter(Duration).validate_python(written)


@given(st.integers(1, 3_660 * 86_400))
def test_a_duration_is_shown_as_it_can_be_read_again(seconds: int) -> None:
    duration = timedelta(seconds=seconds)
    assert read_duration(show_duration(duration)) == duration


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("shape", "gpu"),
        ("example.com/disk_type", "nvme-1.2"),
        ("a" * 63, "0"),
        ("gpu", ""),
        ("gpu", "A100-SXM"),
    ],
)
def test_labels_have_a_grammar_of_their_own(key: str, value: str) -> None:
    assert LabelKey(key) == key
    assert LabelValue(value) == value


@pytest.mark.parametrize("value", ["a/b", "-A", "A.", " ", "é", "A" * 64])
def test_other_label_values_are_refused(value: str) -> None:
    with pytest.raises(ValueError, match="allowed for LabelValue"):
        LabelValue(value)
