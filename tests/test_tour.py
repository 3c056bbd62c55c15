"""docs/tour.md walks through code that exists, leaves out no call on its way, and is not too long.

An item below another is a function that the upper one calls by name, so that no function between
the two is left out. An item at the left margin is reached by a message, a step, a notification, a
queue or a table that holds it, or the start of a process.
"""

import ast
import functools
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.house import SOURCE, Function, Stop, functions, room_changes, walks

WALKS = walks()
# As long as the longest is now: a walk may become shorter.
MAX_STOPS = 205
MAX_ROOM_CHANGES = 80


def calls() -> Iterator[tuple[Stop, Stop]]:
    """Every stop below another one, with the one that calls it."""
    for walk in WALKS.values():
        above: list[Stop] = []
        for stop in walk:
            del above[stop.depth :]
            assert len(above) == stop.depth, f"{stop.name} is too far to the right"
            if above:
                yield above[-1], stop
            above.append(stop)


@functools.cache
def functions_in(file: Path) -> dict[str, Function]:
    return dict(functions(ast.parse(file.read_text())))


def names_in(function: Function) -> set[str]:
    nodes = list(ast.walk(function))
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    return names | {node.attr for node in nodes if isinstance(node, ast.Attribute)}


def is_called_as(stop: Stop) -> set[str]:
    *of_class, name = stop.name.split(".")
    return {name, *of_class} if name in ("__init__", "__call__") else {name}


def test_every_stop_exists() -> None:
    absent = [
        f"{stop.name} in {stop.file}"
        for stop in itertools.chain(*WALKS.values())
        if not stop.file.is_relative_to(SOURCE) or stop.name not in functions_in(stop.file)
    ]
    assert absent == []


def test_every_stop_is_called_by_the_one_above_it() -> None:
    uncalled = [
        f"{stop.name} by {caller.name}"
        for caller, stop in calls()
        if not is_called_as(stop) & names_in(functions_in(caller.file)[caller.name])
    ]
    assert uncalled == []


@pytest.mark.parametrize("walk", WALKS)
def test_a_walk_can_be_walked(walk: str) -> None:
    assert 0 < len(WALKS[walk]) <= MAX_STOPS
    assert room_changes(WALKS[walk]) <= MAX_ROOM_CHANGES


def test_the_tour_has_its_four_walks() -> None:
    assert len(WALKS) == 4
