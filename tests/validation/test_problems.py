"""What is wrong is said with the field, the value and what is allowed."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, ValidationError

from durable.model.ids import RegionId, ZoneId
from durable.model.resources import Resources
from durable.validation.problems import problems_in, sentences
from durable.validation.text import quote
from durable.validation.value import Value


class Mood(StrEnum):
    CALM = "calm"
    BUSY = "busy"


class Site(Value):
    region: RegionId
    mood: Mood = Mood.CALM
    replicas: Annotated[int, Field(ge=1, le=9)] = 1
    spread: bool = False
    note: Annotated[str, Field(max_length=5)] = ""


class Once(Value):
    kind: Literal["once"] = "once"


class Daily(Value):
    kind: Literal["daily"] = "daily"
    hour: int = 0


class Plan(Value):
    sites: tuple[Site, ...] = ()
    main: Site | None = None
    by_zone: Mapping[ZoneId, Site] = Field(default={})
    size: Resources | None = None
    when: Annotated[Once | Daily | None, Field(discriminator="kind")] = None


def sentences_of(data: object) -> list[str]:
    with pytest.raises(ValidationError) as caught:
        Plan.model_validate(data)
    return [str(problem) for problem in problems_in(caught.value, Plan)]


def site(**fields: object) -> dict[str, object]:
    return {"region": "us-east"} | fields


SITE_FIELDS = "region, mood, replicas, spread, note"


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (
            {"sites": [site(), site(replicas="3")]},
            "field sites[1].replicas: got '3'; allowed: a whole number",
        ),
        (
            {"sites": [site(replicas=0)]},
            "field sites[0].replicas: got 0; allowed: a number of at least 1",
        ),
        (
            {"main": site(replicas=10)},
            "field main.replicas: got 10; allowed: a number of at most 9",
        ),
        ({"main": site(mood="sad")}, "field main.mood: got 'sad'; allowed: 'calm' or 'busy'"),
        ({"main": site(spread="yes")}, "field main.spread: got 'yes'; allowed: true or false"),
        (
            {"main": site(note="too long")},
            "field main.note: got 'too long'; allowed: text of at most 5 characters",
        ),
        ({"main": {}}, "field main.region: is missing; it must be given"),
        ({"sites": {}}, "field sites: got {}; allowed: a list"),
        (
            {"sites": ["us-east"]},
            f"field sites[0]: got 'us-east'; allowed: a mapping with the fields {SITE_FIELDS}",
        ),
        (
            {"by_zone": {"us-east-a": site(region="US")}},
            "field by_zone.us-east-a.region: got 'US'; allowed for RegionId: 1 to 63 characters "
            "of a-z, 0-9 and '-', starting and ending with a letter or digit",
        ),
        (
            {"by_zone": {"A": site()}},
            "field by_zone.A (the key): got 'A'; allowed for ZoneId: 1 to 63 characters "
            "of a-z, 0-9 and '-', starting and ending with a letter or digit",
        ),
        (
            {"by_zone": {"us-east-a": site(replica=2)}},
            "field by_zone.us-east-a.replica: unknown field 'replica'; "
            f"known fields: {SITE_FIELDS}; did you mean replicas?",
        ),
        (
            {"main": site(zzz=2)},
            f"field main.zzz: unknown field 'zzz'; known fields: {SITE_FIELDS}",
        ),
        (
            {"size": {"cpu": 1, "memry": "1Gi"}},
            "field size.memry: unknown field 'memry'; known fields: cpu, memory, gpu, cpu_millis, "
            "memory_mib, gpus; did you mean memory?",
        ),
        (
            {"when": {"kind": "weekly"}},
            "field when: got {'kind': 'weekly'}; allowed: a 'kind' out of 'once', 'daily'",
        ),
        (
            {"when": {}},
            "field when: got {}; allowed: a mapping with the field 'kind'",
        ),
        (
            {"when": {"kind": "daily", "hours": 3}},
            "field when.daily.hours: unknown field 'hours'; known fields: kind, hour; "
            "did you mean hour?",
        ),
        (
            [],
            "got []; allowed: a mapping with the fields sites, main, by_zone, size, when",
        ),
    ],
)
def test_a_problem_is_one_sentence(data: object, sentence: str) -> None:
    assert sentences_of(data) == [sentence]


def test_a_key_cannot_forge_a_line_of_the_report() -> None:
    [line] = sentences_of({"x\nfield main: all is well": 1})
    assert line.isprintable()


@given(st.dictionaries(st.text(), st.integers() | st.text(min_size=1), min_size=1, max_size=3))
def test_whatever_the_input_every_problem_fits_on_a_printable_line(data: dict[str, object]) -> None:
    for line in sentences_of({f"x{key}": value for key, value in data.items()}):
        assert line.isprintable()
        assert len(line) < 500


def test_a_long_list_of_problems_is_cut() -> None:
    with pytest.raises(ValidationError) as caught:
        Plan.model_validate({"sites": [site(replicas=0)] * 25})
    lines = sentences(problems_in(caught.value, Plan)).splitlines()
    assert len(lines) == 21
    assert lines[-1] == "and 5 more"


@pytest.mark.parametrize(
    "value",
    [
        "x" * 10**6,
        ["x"] * 10**6,
        pytest.param(10**5000, id="huge"),
        {"a": {"b": ["c"] * 99}},
        b"\x00" * 99,
        "\x1b[",
    ],
)
def test_a_quoted_value_is_short_and_printable(value: object) -> None:
    assert 0 < len(quote(value)) <= 80
    assert quote(value).isprintable()
