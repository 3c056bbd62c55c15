"""docs/manifest.md has every field that a manifest may have, with its default, and no other."""

import re
from collections.abc import Iterator
from datetime import timedelta
from enum import Enum
from pathlib import Path
from typing import Any, get_args

import pytest

from durable.cli.input.manifests import load_manifest
from durable.model.resources import Resources
from durable.model.work.workload import Condition, WorkloadManifest
from durable.validation.quantities import show_duration
from durable.validation.value import Value

DOCUMENT = Path(__file__).parents[3] / "docs" / "manifest.md"
TEXT = DOCUMENT.read_text()
ROW = re.compile(r"^\| `([a-z_]+)` \|.*\|$", re.MULTILINE)


def models(path: str, model: type[Value]) -> Iterator[tuple[str, type[Value]]]:
    """Every mapping that a manifest may hold, by its heading in the document."""
    yield path or "manifest", model
    for name, field in model.model_fields.items():
        for inner in _values_in(field.annotation):
            yield from models(f"{path}.{name}".lstrip("."), inner)


def _values_in(annotation: Any) -> list[type[Value]]:
    if isinstance(annotation, type) and issubclass(annotation, Value):
        return [annotation]
    return [found for part in get_args(annotation) for found in _values_in(part)]


def section(heading: str) -> str:
    begin = TEXT.index(f"\n## {heading}\n")
    end = TEXT.find("\n## ", begin + 1)
    return TEXT[begin:] if end < 0 else TEXT[begin:end]


def rows(heading: str) -> dict[str, list[str]]:
    found = [match[0] for match in ROW.finditer(section(heading))]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in found]
    return {row[0].strip("`"): row[1:] for row in cells}


def shown(default: object) -> str | None:
    """The default as the document writes it; None where it only says that there is one."""
    match default:
        case None:
            return "none"
        case timedelta():
            return f"`{show_duration(default)}`"
        case Enum():
            return f"`{default.value}`"
        case bool():
            return f"`{str(default).lower()}`"
        case Value():
            return None
        case tuple():
            return "`[]`"
        case _:
            return f"`{default}`"


MODELS = dict(models("", WorkloadManifest))


@pytest.mark.parametrize("heading", MODELS)
def test_every_field_is_in_the_document_and_no_other(heading: str) -> None:
    assert set(rows(heading)) == set(MODELS[heading].known_fields())


@pytest.mark.parametrize("heading", [name for name in MODELS if MODELS[name] is not Resources])
def test_the_defaults_in_the_document_are_those_of_the_model(heading: str) -> None:
    for name, field in MODELS[heading].model_fields.items():
        report = rows(heading)[name][1]
        expected = "required" if field.is_required() else shown(field.default)
        assert expected in (None, report), f"{heading}.{name}: {report}, not {expected}"


def test_the_conditions_of_a_workload_are_in_the_document() -> None:
    assert set(rows("Conditions")) == set(Condition.model_fields)


def test_no_section_describes_something_that_no_longer_exists() -> None:
    headings = re.findall(r"^## (.+)$", TEXT, re.MULTILINE)
    assert set(headings) == {*MODELS, "Conditions"}


def test_the_example_can_be_applied(tmp_path: Path) -> None:
    path = tmp_path / "example.yaml"
    path.write_text(TEXT.split("```yaml\n")[1].split("```")[0])
    [manifest] = load_manifest(path, WorkloadManifest)
    assert manifest.spec.replicas == 12
