"""A count of the house: how long files and functions are, and whether a name has two meanings.

It needs no server. The bar: no class name exists twice in src. What is read for the tour is the
Markdown of docs/tour.md, where each link whose text is code is a stop; tests/test_tour.py holds the
tour to the code.
"""

import ast
import itertools
import re
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from bench._report import table, verdict

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src"
TOUR = ROOT / "docs" / "tour.md"

Function = ast.FunctionDef | ast.AsyncFunctionDef
STOP = re.compile(r"\[`(?P<name>[\w.]+)`\]\((?P<path>[^)\s]+\.py)\)")


class Stop(NamedTuple):
    name: str
    file: Path

    @property
    def room(self) -> Path:
        return self.file.parent


def stops(tour: Path = TOUR) -> list[Stop]:
    text = tour.read_text() if tour.exists() else ""
    return [
        Stop(found["name"], (tour.parent / found["path"]).resolve())
        for found in STOP.finditer(text)
    ]


def room_changes(tour: Sequence[Stop]) -> int:
    return sum(here.room != there.room for here, there in itertools.pairwise(tour))


def functions(tree: ast.AST, within: str = "") -> Iterator[tuple[str, Function]]:
    """Every function with its dotted name, inner ones and methods included."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, Function | ast.ClassDef):
            name = f"{within}{node.name}"
            if isinstance(node, Function):
                yield name, node
            yield from functions(node, f"{name}.")
        else:
            yield from functions(node, within)


def names_used_twice(trees: Mapping[Path, ast.Module]) -> dict[str, list[str]]:
    places: dict[str, list[str]] = defaultdict(list)
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{path.relative_to(SOURCE)}:{node.lineno}")
    return {name: where for name, where in sorted(places.items()) if len(where) > 1}


def spread(lengths: Iterable[int]) -> tuple[int, int]:
    """The median and the 90th percentile."""
    ordered = sorted(lengths)
    return round(statistics.median(ordered)), ordered[int(len(ordered) * 0.9)]


def main() -> int:
    trees = {path: ast.parse(path.read_text()) for path in sorted(SOURCE.rglob("*.py"))}
    files = [path for path in trees if path.name != "__init__.py"]
    found = [function for path in trees for function in functions(trees[path])]
    twice = names_used_twice(trees)
    tour = stops()

    file_lines = spread(len(path.read_text().splitlines()) for path in files)
    function_lines = spread((node.end_lineno or node.lineno) - node.lineno + 1 for _, node in found)
    inner_works = sum(name.endswith(".work") for name, _ in found)
    table(
        "The house",
        ["what", "count"],
        [
            ["files under src", len(files)],
            ["the same with __init__.py", len(trees)],
            ["lines of a file, median", file_lines[0]],
            ["lines of a file, 90th percentile", file_lines[1]],
            ["functions and methods", len(found)],
            ["lines of a function, median", function_lines[0]],
            ["lines of a function, 90th percentile", function_lines[1]],
            ["stops of the tour", len(tour)],
            ["changes of room in the tour", room_changes(tour)],
            ["class names that exist twice", len(twice)],
            ["inner functions called work", inner_works],
        ],
    )
    for name, where in twice.items():
        print(f"  {name} exists twice: {', '.join(where)}")
    verdict(
        "house",
        {"class_names_twice": 0},
        {
            "files": len(files),
            "files_with_init": len(trees),
            "file_lines": {"median": file_lines[0], "p90": file_lines[1]},
            "functions": len(found),
            "function_lines": {"median": function_lines[0], "p90": function_lines[1]},
            "tour_stops": len(tour),
            "tour_room_changes": room_changes(tour),
            "class_names_twice": twice,
            "inner_functions_called_work": inner_works,
        },
        holds=not twice,
    )
    return 0 if not twice else 1


if __name__ == "__main__":
    sys.exit(main())
