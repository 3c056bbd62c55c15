"""Every JSON that a document shows for a message can be sent as it is shown."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from durable.model.operators.rights import OperatorMessage
from durable.model.operators.signature import canonical
from durable.model.overrides.kinds import KINDS
from durable.signals.names import OVERRIDE, WORKLOAD, kind_of
from durable.signals.overrides import ProposeOverride
from durable.signals.payloads import Payload
from durable.signals.registry import messages_to

DOCS = Path(__file__).parents[1] / "docs"
PAGES = ("overrides.md", "operators.md", "messages.md")
FENCED = re.compile(r"^```json\n(.*?)^```", re.MULTILINE | re.DOTALL)
SIGNED = re.compile(r"durable sign (\S+) (\S+) '(\{.*?\})'")
SECTION = re.compile(r"^## To an? \w+(?: revision)?, `(\w+)/", re.MULTILINE)
ROW = re.compile(r"^\| `(\w+)` \| person \|.*\| `(\{.*\})` \|$", re.MULTILINE)
KIND_ROW = re.compile(r"^\| `([a-z-]+)` \|.*\| `(\{.*\})` \|.*$", re.MULTILINE)
# The canonical form that is signed: a sketch, and no JSON.
SKETCH = re.compile(r'`(\{"[^`]*": \.\.\.[^`]*\})`')
# Whatever begins like an object in code.
ANY = re.compile(r"""[`']\{|^\{""", re.MULTILINE)
# What `durable sign` adds.
ADDED = {"actor": "person:alice", "request_id": "INC-42-1"}


def payload_of(kind: str | None, name: str) -> type[Payload]:
    assert kind is not None
    return next(one.payload for one in messages_to(kind) if one.name == name)


def rows_of_messages() -> list[tuple[str, str, str]]:
    """By kind of workflow and name, the payload in the table."""
    page = (DOCS / "messages.md").read_text()
    heads = list(SECTION.finditer(page))
    ends = [*(one.start() for one in heads[1:]), len(page)]
    return [
        (head[1], name, shown)
        for head, end in zip(heads, ends, strict=True)
        for name, shown in ROW.findall(page, head.end(), end)
    ]


def signed_examples() -> list[tuple[str, str, str]]:
    return [one for page in PAGES for one in SIGNED.findall((DOCS / page).read_text())]


@pytest.mark.parametrize(("workflow", "name", "shown"), rows_of_messages())
def test_the_payload_in_a_row_of_the_messages_can_be_sent(
    workflow: str, name: str, shown: str
) -> None:
    payload = payload_of(kind_of(workflow), name)
    if (kind_of(workflow), name) != (WORKLOAD, "apply"):
        payload.model_validate_json(shown)
        return
    # Only its manifest is left to be written.
    with pytest.raises(ValidationError) as error:
        payload.model_validate_json(shown)
    assert {one["loc"][0] for one in error.value.errors()} == {"manifest"}


@pytest.mark.parametrize(("workflow", "name", "shown"), signed_examples())
def test_what_is_shown_to_be_signed_can_be_sent(workflow: str, name: str, shown: str) -> None:
    content: dict[str, Any] = {**ADDED, **json.loads(shown)}
    payload_of(kind_of(workflow), name).model_validate(content)


def test_the_input_that_starts_an_override_is_a_proposal() -> None:
    shown = FENCED.findall((DOCS / "overrides.md").read_text())
    assert len(shown) == 1
    assert payload_of(OVERRIDE, "propose") is ProposeOverride
    ProposeOverride.model_validate_json(shown[0])


def test_the_effect_in_the_row_of_a_kind_is_one_of_it() -> None:
    shown = KIND_ROW.findall((DOCS / "overrides.md").read_text())
    assert [name for name, _ in shown] == list(KINDS)
    for name, effect in shown:
        KINDS[name].effect.model_validate_json(effect)


def test_the_canonical_form_is_shown_with_all_that_is_signed() -> None:
    (sketch,) = SKETCH.findall((DOCS / "operators.md").read_text())
    signed = json.loads(canonical(OperatorMessage(workflow_id="w", message="m", payload={}), "d"))
    assert set(re.findall(r'"(\w+)": \.\.\.', sketch)) == set(signed)


@pytest.mark.parametrize("page", PAGES)
def test_no_json_of_these_pages_is_left_out(page: str) -> None:
    text = (DOCS / page).read_text()
    checked = [one for find in (FENCED, SIGNED, SKETCH) for one in find.findall(text)]
    checked += ROW.findall(text) if page == "messages.md" else []
    checked += KIND_ROW.findall(text) if page == "overrides.md" else []
    assert len(checked) == len(ANY.findall(text)) > 0
