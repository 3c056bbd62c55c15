"""Two decisions that found the same are one to a reader, whatever the numbers in them."""

import pytest

from durable.scheduling.findings import findings_of
from tests.scheduling.world import FULL, Region, node, region, request, used


def found(where: Region, **wanted: object) -> str | None:
    asked = request(**wanted)  # pyright: ignore[reportArgumentType]
    return findings_of(asked, where.decide(asked))


FULL_REGION = region(node("n1", used=FULL), node("n2", used=FULL))


@pytest.mark.parametrize(
    "other",
    [
        region(node("n1", used=FULL), node("n2", used=used(cpu=8, memory=31))),
        region(*(node(f"n{number}", used=FULL) for number in range(5))),
        FULL_REGION.but(in_use=used(cpu=3)),
    ],
)
def test_other_numbers_are_no_other_findings(other: Region) -> None:
    assert found(other) == found(FULL_REGION) is not None


@pytest.mark.parametrize(
    ("other", "wanted"),
    [
        (region(node("n1", ready=False)), {}),
        (region(node("n1", used=FULL), node("n2", cordoned=True)), {}),
        (FULL_REGION.but(grant=None), {}),
        (FULL_REGION, {"slots": 2}),
        (FULL_REGION, {"cpu": 2}),
    ],
)
def test_another_reason_or_request_is_found_anew(other: Region, wanted: dict[str, int]) -> None:
    assert found(other, **wanted) not in (found(FULL_REGION), None)


def test_the_number_of_the_attempt_is_no_finding() -> None:
    assert found(FULL_REGION, attempt=2) == found(FULL_REGION, attempt=1)


def test_a_decision_that_places_something_is_like_no_other() -> None:
    assert found(region(node())) is None
    assert found(region(node()), slots=9) is None
