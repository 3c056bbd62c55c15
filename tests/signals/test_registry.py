"""The registry of messages: every row can be used as it is shown."""

import json
import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from durable.signals.names import (
    DRAIN,
    OVERRIDE,
    PLACEMENT,
    POLICY,
    RECOVERY,
    WORKLOAD,
    kind_of,
)
from durable.signals.payloads import OperatorRequest
from durable.signals.registry import REGISTRY, Message, Sender, messages_to
from durable.workflows.drain.workflow import DrainWorkflow
from durable.workflows.override.workflow import OverrideWorkflow
from durable.workflows.placement.workflow import Placement
from durable.workflows.policy.workflow import PolicyWorkflow
from durable.workflows.recovery.workflow import RecoveryWorkflow
from durable.workflows.workload.workflow import Workload

PEOPLE = [message for message in REGISTRY if message.sender is Sender.PERSON]
WORKFLOWS = {
    PLACEMENT: Placement,
    WORKLOAD: Workload,
    DRAIN: DrainWorkflow,
    OVERRIDE: OverrideWorkflow,
    POLICY: PolicyWorkflow,
    RECOVERY: RecoveryWorkflow,
}


def test_a_message_exists_once_for_each_workflow() -> None:
    keys = [(message.to, message.name) for message in REGISTRY]
    assert len(keys) == len(set(keys))
    assert {message.to for message in REGISTRY} == set(WORKFLOWS)


@pytest.mark.parametrize("message", REGISTRY, ids=lambda m: f"{m.to}-{m.name}")
def test_every_message_has_a_handler_and_a_sentence(message: Message) -> None:
    assert callable(getattr(WORKFLOWS[message.to], f"on_{message.name}"))
    assert re.fullmatch(r"[A-Z].*\.", message.sentence)


@pytest.mark.parametrize("message", PEOPLE, ids=lambda m: f"{m.to}-{m.name}")
def test_what_people_send_says_who_asks_and_why_and_its_example_is_complete(
    message: Message,
) -> None:
    assert issubclass(message.payload, OperatorRequest)
    assert hasattr(WORKFLOWS[message.to], message.name), "there is an update of this name"
    unsigned = set(message.payload.model_fields) - {"signed_at", "signature"}
    assert set(message.example) == unsigned
    if message.name == "apply":  # its manifest is too long for a page
        with pytest.raises(ValidationError, match="manifest"):
            message.payload.model_validate(message.example)
    else:
        message.payload.model_validate(message.example)


@pytest.mark.parametrize("workflow", WORKFLOWS)
def test_messages_of_controllers_are_no_updates_and_not_offered_to_people(workflow: str) -> None:
    for message in messages_to(workflow, sender=Sender.CONTROLLER):
        assert not hasattr(WORKFLOWS[workflow], message.name)
        assert not message.is_in_cli


def test_the_reference_lists_every_message_as_it_is_and_no_other() -> None:
    page = (Path(__file__).parents[2] / "docs" / "messages.md").read_text()
    listed = [line for line in page.splitlines() if line.startswith("| `")]
    assert listed == [
        _row(message)
        for workflow in (WORKLOAD, PLACEMENT, DRAIN, POLICY, OVERRIDE, RECOVERY)
        for message in messages_to(workflow)
    ]


def _row(message: Message) -> str:
    example = json.dumps(message.example)
    payload = example if message.sender is Sender.PERSON else message.payload.__name__
    verb = "" if message.verb is None else f"`{message.verb}`"
    return f"| `{message.name}` | {message.sender} | {verb} | {message.sentence} | `{payload}` |"


def test_every_workflow_that_people_write_to_is_known_by_its_id() -> None:
    ids = {
        WORKLOAD: "workload/risk/api",
        PLACEMENT: "placement/risk/api/g1/east",
        DRAIN: "drain/east/n1",
        OVERRIDE: "override/inc-42",
        POLICY: "policy/2",
        RECOVERY: "recovery/east/3",
    }
    assert ids.keys() == {one.to for one in REGISTRY if one.sender is Sender.PERSON}
    assert {kind: kind_of(id) for kind, id in ids.items()} == {kind: kind for kind in ids}
