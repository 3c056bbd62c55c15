"""docs/tour.md names files and functions that exist, and stays short enough to be walked."""

import ast
import re

import pytest
from bench.house import SOURCE, TOUR, Stop, functions, room_changes, stops

STOPS = stops()
MAX_STOPS = 60
MAX_ROOM_CHANGES = 25


def test_the_tour_has_stops_in_order() -> None:
    numbers = [
        int(number) for number in re.findall(r"^(\d+)\. \[`", TOUR.read_text(), re.MULTILINE)
    ]
    assert numbers == list(range(1, len(STOPS) + 1))


@pytest.mark.parametrize("stop", STOPS, ids=lambda stop: stop.name)
def test_every_stop_exists(stop: Stop) -> None:
    assert stop.file.is_relative_to(SOURCE), stop.file
    defined = {name for name, _ in functions(ast.parse(stop.file.read_text()))}
    assert stop.name in defined


def test_every_link_to_the_code_is_a_stop() -> None:
    assert len(re.findall(r"\(\.\./src/", TOUR.read_text())) == len(STOPS)


def test_the_tour_can_be_walked() -> None:
    assert 0 < len(STOPS) <= MAX_STOPS
    assert room_changes(STOPS) <= MAX_ROOM_CHANGES
