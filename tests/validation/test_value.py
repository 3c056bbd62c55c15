"""A value is frozen, knows its fields, and takes nothing for what it is not."""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum

import pytest
from pydantic import AwareDatetime, Field, ValidationError

from durable.validation.value import Value


class Colour(StrEnum):
    RED = "red"


class Leaf(Value):
    count: int = 0


class Tree(Value):
    leaves: tuple[Leaf, ...] = ()
    colour: Colour = Colour.RED
    planted: AwareDatetime = datetime(2030, 1, 31, 12, tzinfo=UTC)
    age: timedelta = timedelta(seconds=90)
    height: float = 1.5
    name: str = "oak"
    tall: bool = True
    maybe: int | None = None
    by_year: Mapping[int, Leaf] = Field(default={2030: Leaf(count=1)})


Reader = Callable[[dict[str, object]], Tree]
TREE = Tree(leaves=(Leaf(count=3), Leaf()), maybe=7)


def read_python(data: dict[str, object]) -> Tree:
    return Tree.model_validate(data)


def read_json(data: dict[str, object]) -> Tree:
    return Tree.model_validate_json(json.dumps(data))


@pytest.mark.parametrize("read", [read_python, read_json])
def test_plain_json_data_reads_back_as_the_same_value(read: Reader) -> None:
    assert read(TREE.model_dump(mode="json")) == TREE


def test_python_data_reads_back_as_the_same_value() -> None:
    assert Tree.model_validate(TREE.model_dump()) == TREE


@pytest.mark.parametrize("read", [read_python, read_json])
@pytest.mark.parametrize(
    ("field", "guess"),
    [
        ("maybe", "1"),
        ("maybe", 1.0),
        ("maybe", True),
        ("maybe", 1.5),
        ("leaves", [{"count": "1"}]),
        ("leaves", [{"count": True}]),
        ("leaves", "ab"),
        ("by_year", {"2030": {"count": 1.0}}),
        ("colour", "RED"),
        ("colour", "blue"),
        ("colour", 0),
        ("planted", 1_700_000_000),
        ("planted", "1700000000"),
        ("planted", "2030-01-31T12:00:00"),
        ("age", 90),
        ("age", "90"),
        ("age", 1.5),
        ("height", "1.5"),
        ("height", True),
        ("name", 5),
        ("name", None),
        ("tall", 1),
        ("tall", "yes"),
        ("tall", "true"),
        ("unheard_of", 1),
    ],
)
def test_a_guess_is_refused(read: Reader, field: str, guess: object) -> None:
    with pytest.raises(ValidationError) as caught:
        read({field: guess})
    assert {error["loc"][0] for error in caught.value.errors()} == {field}


def test_a_value_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        TREE.name = "elm"


def test_equal_content_is_equal_and_hashes_alike() -> None:
    assert Leaf(count=2) == Leaf(count=2)
    assert hash(Leaf(count=2)) == hash(Leaf(count=2))
    assert Leaf(count=2) != Leaf(count=3)


def test_a_field_may_be_called_like_a_word_of_the_schema() -> None:
    class Tricky(Value):
        type: int
        metadata: int
        default: int

    assert Tricky(type=1, metadata=2, default=3).metadata == 2
    for name in ("type", "metadata", "default"):
        with pytest.raises(ValidationError):
            Tricky.model_validate({"type": 1, "metadata": 2, "default": 3, name: "4"})
