"""A count of the house: how long files and functions are, how full rooms are, how far walks go.

It needs no server. What must hold (`--check`, which `make check` runs): no class name exists twice
in src, none is a bare participle, no room has too many files, and no sentence is cut by hand. Where
the last two do not hold yet, what is still allowed is counted here, and may only become less.
What is read for the walks is the Markdown of docs/tour.md, where each item that begins with a link
is a stop; tests/test_tour.py holds the walks to the code.
"""

import ast
import itertools
import re
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from bench._report import table, verdict

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src"
TOUR = ROOT / "docs" / "tour.md"

Function = ast.FunctionDef | ast.AsyncFunctionDef
WALK = re.compile(r"^## (?P<walk>.+)$", re.MULTILINE)
STOP = re.compile(r"^(?P<indent> *)- \[`(?P<name>[\w.]+)`\]\((?P<path>[^)\s]+\.py)\)", re.MULTILINE)
# A room with more files than this is several rooms.
FILES_PER_ROOM = 16
# Rooms that are still to be divided, with the files that each has: lower a number when its room has
# fewer, and remove the row when the room is no longer crowded.
STILL_CROWDED: Mapping[str, int] = {}
CUT_BY_HAND = re.compile(r"\[:500\]")
# So many are left to be removed: lower this number with each of them.
STILL_CUT_BY_HAND = 0
PARTICIPLE = re.compile(r"_?[A-Z][a-z]+(ed|en|ing)|_?(Seen|Told|Known|Found|Given)")
# These end like participles and are nouns of the field, or one of two outcomes.
NOUNS = frozenset({"Binding", "Finding", "Pending", "Sampling", "Timing", "Granted", "Refused"})


class Stop(NamedTuple):
    name: str
    file: Path
    # How many calls it is away from where its process, message or step began.
    depth: int

    @property
    def room(self) -> str:
        """The top room that it is in."""
        return self.file.relative_to(SOURCE / "durable").parts[0]


def walks(tour: Path = TOUR) -> dict[str, list[Stop]]:
    """The stops of each walk, in the order in which the code runs."""
    _, *parts = WALK.split(tour.read_text())
    return {
        name: [
            Stop(stop["name"], (tour.parent / stop["path"]).resolve(), len(stop["indent"]) // 2)
            for stop in STOP.finditer(text)
        ]
        for name, text in zip(parts[::2], parts[1::2], strict=True)
    }


def room_changes(walk: Sequence[Stop]) -> int:
    return sum(here.room != there.room for here, there in itertools.pairwise(walk))


def crowded_rooms() -> dict[str, int]:
    """Rooms with too many files."""
    rooms = Counter(path.parent for path in SOURCE.rglob("*.py") if path.name != "__init__.py")
    return {
        str(room.relative_to(SOURCE)): files
        for room, files in sorted(rooms.items())
        if files > FILES_PER_ROOM
    }


def participles(trees: Mapping[Path, ast.Module]) -> list[str]:
    """Classes that are called by what was done, and not by what they are."""
    return [
        f"{path.relative_to(SOURCE)}:{node.lineno} {node.name}"
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        and PARTICIPLE.fullmatch(node.name)
        and node.name not in NOUNS
    ]


def cut_by_hand() -> list[str]:
    """Sentences that are cut where they are made; a refusal cuts its own."""
    return [
        f"{path.relative_to(SOURCE)}:{number}"
        for path in sorted(SOURCE.rglob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if CUT_BY_HAND.search(line)
    ]


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


def broken_rules(trees: Mapping[Path, ast.Module]) -> list[str]:
    """What must hold and does not, a line each."""
    twice = [
        f"{name} exists twice: {', '.join(at)}" for name, at in names_used_twice(trees).items()
    ]
    crowded = [
        f"{room} has {files} files; allowed: {allowed}"
        for room, files in crowded_rooms().items()
        if files > (allowed := STILL_CROWDED.get(room, FILES_PER_ROOM))
    ]
    named = [f"{where} is a participle" for where in participles(trees)]
    cuts = cut_by_hand()
    is_too_many = len(cuts) > STILL_CUT_BY_HAND
    cut = [f"{where} cuts a sentence by hand" for where in cuts if is_too_many]
    outdated = outdated_allowances(crowded_rooms(), len(cuts))
    return [*twice, *crowded, *named, *cut, *outdated]


def outdated_allowances(crowded: Mapping[str, int], cuts: int) -> list[str]:
    """What is allowed above and is not needed any more: it must not be used up again."""
    outdated = [
        f"{room} has {crowded.get(room, f'at most {FILES_PER_ROOM}')} files: lower its number in "
        "STILL_CROWDED, or remove its row"
        for room, allowed in STILL_CROWDED.items()
        if crowded.get(room, 0) < allowed
    ]
    if cuts < STILL_CUT_BY_HAND:
        outdated.append(f"{cuts} sentences are cut by hand: lower STILL_CUT_BY_HAND to that")
    return outdated


def main() -> int:
    trees = {path: ast.parse(path.read_text()) for path in sorted(SOURCE.rglob("*.py"))}
    broken = broken_rules(trees)
    if "--check" in sys.argv:
        print("\n".join(broken) or "The house is in order.")
        return 1 if broken else 0

    files = [path for path in trees if path.name != "__init__.py"]
    all_functions = [function for path in trees for function in functions(trees[path])]
    file_lines = spread(len(path.read_text().splitlines()) for path in files)
    function_lines = spread(
        (node.end_lineno or node.lineno) - node.lineno + 1 for _, node in all_functions
    )
    tour = walks()
    figures = {
        "files": len(files),
        "files_with_init": len(trees),
        "classes": sum(
            isinstance(node, ast.ClassDef) for tree in trees.values() for node in ast.walk(tree)
        ),
        "file_lines_median": file_lines[0],
        "file_lines_p90": file_lines[1],
        "functions": len(all_functions),
        "function_lines_median": function_lines[0],
        "function_lines_p90": function_lines[1],
        "rooms_still_crowded": len(crowded_rooms()),
        "sentences_still_cut_by_hand": len(cut_by_hand()),
    }
    table("The house", ["what", "count"], [[what, count] for what, count in figures.items()])
    table(
        "The walks",
        ["walk", "stops", "changes of room"],
        [[name, len(walk), room_changes(walk)] for name, walk in tour.items()],
    )
    for line in broken:
        print(f"  {line}")
    stops = {name: [len(walk), room_changes(walk)] for name, walk in tour.items()}
    verdict("house", {"broken": 0}, {**figures, "walks": stops, "broken": broken}, holds=not broken)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
