"""docs/tour.md walks through code that exists, leaves out no call on its way, and is not too long.

An item below another is a function that the upper one calls by name, so that no function between
the two is left out. An item at the left margin is reached by a message, a step, a notification, a
queue or a table that holds it, or the start of a process.
"""

import ast
import itertools
from collections.abc import Iterator

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


def function_at(stop: Stop) -> Function:
    named = functions(ast.parse(stop.file.read_text()))
    return next(node for name, node in named if name == stop.name)


def names_in(function: Function) -> set[str]:
    nodes = list(ast.walk(function))
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    return names | {node.attr for node in nodes if isinstance(node, ast.Attribute)}


def is_called_as(stop: Stop) -> set[str]:
    *of_class, name = stop.name.split(".")
    return {name, *of_class} if name in ("__init__", "__call__") else {name}


@pytest.mark.parametrize("stop", [*itertools.chain(*WALKS.values())], ids=lambda stop: stop.name)
def test_every_stop_exists(stop: Stop) -> None:
    assert stop.file.is_relative_to(SOURCE), stop.file
    assert stop.name in {name for name, _ in functions(ast.parse(stop.file.read_text()))}


@pytest.mark.parametrize(("caller", "stop"), [*calls()], ids=lambda stop: stop.name)
def test_every_stop_is_called_by_the_one_above_it(caller: Stop, stop: Stop) -> None:
    assert is_called_as(stop) & names_in(function_at(caller))


@pytest.mark.parametrize("walk", WALKS)
def test_a_walk_can_be_walked(walk: str) -> None:
    assert 0 < len(WALKS[walk]) <= MAX_STOPS
    assert room_changes(WALKS[walk]) <= MAX_ROOM_CHANGES


def test_the_tour_has_its_four_walks() -> None:
    assert len(WALKS) == 4
