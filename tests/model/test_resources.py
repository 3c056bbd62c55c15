"""Resources are exact: read from units without loss, and added up without a float."""

import json
from operator import add, mul, sub

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from durable.model.resources import (
    DIMENSIONS,
    ZERO,
    Capacity,
    Resources,
    at_most,
    minus,
    plus,
    times,
)
from durable.validation.problems import problems_in
from durable.validation.quantities import MAX_QUANTITY

# Three of the largest still add up within the bound.
amounts = st.integers(min_value=0, max_value=MAX_QUANTITY // 3)
resources = st.builds(Resources.of, amounts, amounts, amounts)


def written(**fields: object) -> Resources:
    return Resources.model_validate(fields)


@pytest.mark.parametrize(
    ("cpu", "millis"),
    [
        ("500m", 500), ("0", 0), (0, 0), ("2", 2000), (2, 2000), ("1m", 1), ("1500m", 1500),
        ("0.5", 500), (0.5, 500), ("1.25", 1250), (0.001, 1), (0.29, 290), (1.0, 1000),
        ("2.500", 2500), ("1.0m", 1), ("9007199254740.991", MAX_QUANTITY),
    ],
)  # fmt: skip
def test_cpu_is_read_in_cores_and_millis(cpu: object, millis: int) -> None:
    assert written(cpu=cpu) == Resources(cpu_millis=millis)


@pytest.mark.parametrize(
    ("memory", "up", "down"),
    [
        ("0Mi", 0, 0),
        ("512Mi", 512, 512),
        ("1Gi", 1024, 1024),
        ("2Ti", 2 * 1024**2, 2 * 1024**2),
        ("1048576Ki", 1024, 1024),
        ("1Ki", 1, 0),
        ("1025Ki", 2, 1),
        ("1M", 1, 0),
        ("512M", 489, 488),
        ("1G", 954, 953),
        ("1T", 953_675, 953_674),
        ("1048576M", 1_000_000, 1_000_000),
        ("1.5Gi", 1536, 1536),
        ("0.5Gi", 512, 512),
        ("2.0Mi", 2, 2),
        ("0.25Ti", 256 * 1024, 256 * 1024),
    ],
)
def test_memory_is_rounded_up_when_requested_and_down_when_offered(
    memory: str, up: int, down: int
) -> None:
    assert written(cpu=1, memory=memory).memory_mib == up
    assert Capacity.model_validate({"cpu": 1, "memory": memory}).memory_mib == down


def test_left_out_memory_and_gpus_are_none_and_cpu_is_never_left_out() -> None:
    assert written(cpu="500m") == Resources(cpu_millis=500, memory_mib=0, gpus=0)
    with pytest.raises(ValidationError, match="cpu_millis"):
        written(memory="1Gi")


def test_exact_and_friendly_names_may_be_mixed_but_not_doubled() -> None:
    assert written(cpu=1, memory_mib=5) == Resources(cpu_millis=1000, memory_mib=5)
    with pytest.raises(ValidationError, match="got cpu and cpu_millis; allowed: one of the two"):
        written(cpu=1, cpu_millis=1000)


NO_NUMBERS: list[object] = [
    "",
    " ",
    "1 ",
    " 1",
    "1\n",
    "+1",
    "-1",
    "01",
    "1_0",
    "1e3",
    "0x10",
    "\uff11",
    "\u0661",
    "one",
    "9" * 100,
    None,
    True,
    -1,
    1.0,
    float("nan"),
    2**63,
    [1],
    {},
]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *[("cpu", value) for value in NO_NUMBERS if value != 1.0],
        *[("cpu", value) for value in ["1.5m", "5 m", "5M", "5k", ".5", "1.", "0.5.0", "-0.5"]],
        *[("cpu", value) for value in [0.0005, "0.0005", 1e-9, 1e300, -0.5, float("inf")]],
        *[("memory", value) for value in [*NO_NUMBERS, "1", 1, 0, "Mi", "1gb", "1gi", "1GB"]],
        *[("memory", f"{value}Mi") for value in NO_NUMBERS if isinstance(value, str)],
        *[
            ("memory", value)
            for value in ["1 Gi", "0.3Gi", "1.5G", "0.5Ki", "1Gi\n", f"{2**63}Mi", "1Pi", "1k"]
        ],
        *[("gpu", value) for value in [*NO_NUMBERS, "1", "1m"]],
        *[(field, value) for field in DIMENSIONS for value in [*NO_NUMBERS, "1", 2**53]],
    ],
)
def test_nonsense_is_refused_by_name_with_what_is_allowed(field: str, value: object) -> None:
    with pytest.raises(ValidationError) as caught:
        Resources.model_validate(
            {"cpu_millis": 1, field: value} if field != "cpu" else {field: value}
        )
    [problem] = problems_in(caught.value, Resources)
    assert problem.path == field
    assert problem.message.startswith("got ")
    assert "; allowed: " in problem.message
    assert problem.message.isprintable()
    assert len(problem.message) < 300


def test_the_usual_mistakes_are_answered_with_how_to_write_it() -> None:
    with pytest.raises(
        ValidationError, match=r"got 0\.0005, which is not a whole number of millis"
    ):
        written(cpu=0.0005)
    with pytest.raises(ValidationError, match=r"got '0\.3Gi', which is not a whole number of MiB"):
        written(cpu=1, memory="0.3Gi")
    with pytest.raises(ValidationError, match="give a unit"):
        written(cpu=1, memory=512)


def test_every_bad_entry_is_reported_at_once() -> None:
    with pytest.raises(ValidationError) as caught:
        written(cpu="x", memory="y", gpu="z")
    assert [problem.path for problem in problems_in(caught.value, Resources)] == [
        "cpu",
        "memory",
        "gpu",
    ]


@pytest.mark.parametrize(
    ("amount", "shown"),
    [
        (Resources.of(2000, 4096, 1), "2 cpu, 4Gi, 1 gpu"),
        (Resources.of(500, 512), "500m cpu, 512Mi"),
        (Resources.of(1500, 1536), "1500m cpu, 1536Mi"),
        (Resources.of(0, 3 * 1024**2), "0 cpu, 3Ti"),
        (ZERO, "0 cpu"),
    ],
)
def test_resources_read_well(amount: Resources, shown: str) -> None:
    assert str(amount) == shown


@given(resources)
def test_resources_survive_json_and_their_own_words(amount: Resources) -> None:
    assert Resources.model_validate_json(amount.model_dump_json()) == amount
    assert Resources.model_validate(amount.model_dump()) == amount
    assert json.loads(amount.model_dump_json()) == dict(
        zip(DIMENSIONS, amount.amounts, strict=True)
    )
    cpu, *rest = str(amount).split(", ")
    words: dict[str, object] = {"cpu": cpu.removesuffix(" cpu")}
    for word in rest:
        words |= {"gpu": int(word[:-4])} if word.endswith(" gpu") else {"memory": word}
    assert Resources.model_validate(words) == amount


@given(resources, resources, resources)
def test_sums_do_not_depend_on_their_order(a: Resources, b: Resources, c: Resources) -> None:
    assert a + b == b + a
    assert (a + b) + c == a + (b + c)
    assert a + ZERO == a
    assert (a + b) - b == a
    assert a.fits_in(a + b)


@given(resources, resources)
def test_taking_away_works_exactly_when_it_fits(a: Resources, b: Resources) -> None:
    lacking = b.shortfall(a)
    assert b.fits_in(a) == (lacking == ())
    if b.fits_in(a):
        assert (a - b) + b == a
    else:
        with pytest.raises(ValueError, match="not enough") as caught:
            sub(a, b)
        assert all(dimension in str(caught.value) for dimension in lacking)


@given(resources, st.integers(min_value=0, max_value=3))
def test_times_is_repeated_addition(a: Resources, times: int) -> None:
    total = ZERO
    for _ in range(times):
        total += a
    assert a * times == total


def test_a_sum_past_the_bound_is_refused_rather_than_rounded() -> None:
    with pytest.raises(ValidationError):
        add(Resources.of(MAX_QUANTITY), Resources.of(1))
    with pytest.raises(ValidationError):
        mul(Resources.of(1), -1)
    with pytest.raises(ValidationError):
        mul(Resources.of(1), 0.5)  # pyright: ignore[reportCallIssue, reportArgumentType]


@given(resources, resources, st.integers(0, MAX_QUANTITY))
def test_what_fits_into_a_sum_fits_into_its_clipped_form(
    a: Resources, b: Resources, amount: int
) -> None:
    total = plus(times(a.amounts, 4_000), b.amounts)
    assert at_most((amount, 0, 0), total) == Resources.of(amount).fits_in(Resources.clipped(total))
    assert Resources.clipped(minus(ZERO.amounts, a.amounts)) == ZERO


def test_the_shortfall_names_the_dimensions() -> None:
    assert Resources.of(2, 2, 2).shortfall(Resources.of(1, 2, 1)) == ("cpu_millis", "gpus")


def test_a_capacity_equals_a_request_of_the_same_size() -> None:
    capacity = Capacity(cpu_millis=1, memory_mib=2)
    assert capacity == Resources.of(1, 2)
    assert hash(capacity) == hash(Resources.of(1, 2))
    assert Resources.of(1, 2) != Resources.of(1, 3)
    assert Resources.of(0).is_zero
    assert not capacity.is_zero
