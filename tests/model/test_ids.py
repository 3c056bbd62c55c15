"""Names keep to one grammar, whoever makes them and however they arrive."""

import json
import pickle
import re
import string
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, TypeAdapter, ValidationError

from durable.model.ids import (
    ActorId,
    BudgetId,
    DeviceId,
    Generation,
    Identifier,
    IncidentId,
    NodeId,
    OverrideId,
    PolicyRevision,
    PoolId,
    RegionId,
    Slot,
    TenantId,
    Token,
    WorkloadName,
    ZoneId,
)
from durable.validation.value import Value

PLAIN_KINDS: list[type[Identifier]] = [
    RegionId,
    ZoneId,
    PoolId,
    NodeId,
    DeviceId,
    TenantId,
    WorkloadName,
    IncidentId,
    OverrideId,
    BudgetId,
]
KINDS = [*PLAIN_KINDS, ActorId]

INNER = string.ascii_lowercase + string.digits
names = st.from_regex("[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", fullmatch=True)


class Place(Value):
    region: RegionId
    zones: Mapping[ZoneId, int] = Field(default={})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["a", "0", "us-east", "a--b", "a" * 63, "9" * 63])
def test_a_name_within_the_grammar_is_itself(kind: type[Identifier], name: str) -> None:
    made = kind(name)
    assert made == name
    assert type(made) is kind
    assert str(made) == name
    assert f"{made}" == name


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        "-a",
        "a-",
        "-",
        "A",
        "us East",
        "us-east\n",
        "\nus-east",
        "us\x00east",
        "us\teast",
        "us\x7feast",
        "cafe\u0301",
        "café",
        "\uff41",
        "a\u200bb",
        "a\u202eb",
        "\u0660",
        "a" * 129,
        "a" * 1_000_000,
        None,
        1,
        True,
        b"us-east",
        ["us-east"],
    ],
)
def test_a_name_outside_the_grammar_is_refused(kind: type[Identifier], name: object) -> None:
    with pytest.raises(ValueError, match=r"got .*; allowed for .*starting and ending") as caught:
        kind(name)  # pyright: ignore[reportArgumentType]
    message = str(caught.value)
    assert kind.__name__ in message
    assert message.isprintable()
    assert len(message) < 300
    with pytest.raises(ValidationError):
        TypeAdapter(kind).validate_python(name)


@pytest.mark.parametrize("kind", PLAIN_KINDS)
@pytest.mark.parametrize("name", ["a" * 64, "a.b", "a@b", "a_b", "a:b", "a/b"])
def test_only_actors_may_be_written_like_an_address(kind: type[Identifier], name: str) -> None:
    with pytest.raises(ValueError, match="allowed for"):
        kind(name)
    assert ActorId(name) == name


def test_people_and_controllers_are_actors() -> None:
    for name in ("alice@example.com", "controller:quota", "team/site_ops", "a" * 128):
        assert ActorId(name) == name


@given(st.text(max_size=80))
def test_no_text_outside_the_grammar_ever_becomes_a_name(text: str) -> None:
    allowed = (
        0 < len(text) <= 63
        and set(text) <= set(INNER + "-")
        and not text.startswith("-")
        and not text.endswith("-")
    )
    try:
        made = RegionId(text)
    except ValueError:
        assert not allowed
    else:
        assert allowed
        assert made == text


@given(names)
def test_a_name_survives_json_and_pickle(name: str) -> None:
    place = Place(region=RegionId(name), zones={ZoneId(name): 1})
    assert json.loads(place.model_dump_json()) == {"region": name, "zones": {name: 1}}
    assert type(place.model_dump(mode="json")["region"]) is str
    for read in (
        Place.model_validate_json(place.model_dump_json()),
        Place.model_validate(place.model_dump(mode="json")),
        Place.model_validate(place.model_dump()),
    ):
        assert read == place
        assert type(read.region) is RegionId
        assert [type(zone) for zone in read.zones] == [ZoneId]
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        copy = pickle.loads(pickle.dumps(RegionId(name), protocol))  # noqa: S301
        assert copy == name
        assert type(copy) is RegionId


@given(st.lists(names))
def test_names_sort_and_key_like_their_text(texts: list[str]) -> None:
    regions = [RegionId(text) for text in texts]
    assert sorted(regions) == sorted(texts)
    assert dict.fromkeys(regions) == dict.fromkeys(texts)


def test_a_name_of_another_kind_is_a_mix_up() -> None:
    with pytest.raises(ValidationError, match="not another kind of name"):
        Place(region=ZoneId("us-east"))  # pyright: ignore[reportArgumentType]


def test_the_json_schema_states_the_grammar() -> None:
    schema = TypeAdapter(RegionId).json_schema()
    assert schema["type"] == "string"
    assert schema["maxLength"] == 63
    assert re.search(schema["pattern"], "us-east")
    assert not re.search(schema["pattern"], "US")


@pytest.mark.parametrize(
    ("kind", "least", "most"),
    [
        (PolicyRevision, 1, 2**31 - 1),
        (Generation, 1, 2**31 - 1),
        (Slot, 0, 99_999),
        (Token, 1, 2**63 - 1),
    ],
)
def test_a_number_stays_within_its_bounds(kind: type[int], least: int, most: int) -> None:
    numbers: TypeAdapter[int] = TypeAdapter(kind)
    assert numbers.validate_python(least) == least
    assert numbers.validate_python(most) == most
    assert numbers.validate_json(str(most)) == most
    for wrong in (least - 1, most + 1, str(least), float(most), True, None):
        with pytest.raises(ValidationError):
            numbers.validate_python(wrong)
