"""What processes send each other may come from a later release; what people write may not."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import ValidationError
from temporalio import workflow
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from durable.activities.steps import PlacementKey, StepRefusal, StepResult
from durable.model.ids import RegionId, TenantId, WorkloadName
from durable.model.refusal import Refusal, RefusalCode
from durable.model.work.workload import WorkloadManifest
from durable.signals.registry import REGISTRY, Message, Sender
from durable.temporal.connection import data_converter
from durable.workflows.inbox import Inbox, MessageLog

KEY = PlacementKey(
    region=RegionId("east"),
    tenant=TenantId("risk"),
    workload=WorkloadName("api"),
    generation=1,
)


def converted(data: str, kind: Any) -> Any:
    payload = Payload(metadata={"encoding": b"json/plain"}, data=data.encode())
    return data_converter.payload_converter.from_payload(payload, kind)


def test_a_field_of_a_later_release_is_ignored_at_every_depth() -> None:
    refusal = '{"code":"node_full","sentence":"Full.","later":1}'
    sent = f'{{"done":[],"refused":[{{"slot":3,"refusal":{refusal},"later":2}}],"later":[{{}}]}}'
    full = Refusal(code=RefusalCode.NODE_FULL, sentence="Full.")
    assert converted(sent, StepResult) == StepResult(refused=(StepRefusal(slot=3, refusal=full),))


def test_a_wrong_type_is_still_refused() -> None:
    with pytest.raises(ValidationError):
        converted(KEY.model_dump_json().replace(":1}", ':"1"}'), PlacementKey)


def test_a_mistake_of_a_person_is_still_refused() -> None:
    spec = {"replicas": 1, "resources": {"cpu": 1}, "replica": 2}
    with pytest.raises(ValidationError):
        WorkloadManifest.model_validate({"tenant": "risk", "name": "api", "spec": spec})


@pytest.mark.parametrize("message", REGISTRY, ids=lambda message: message.name)
def test_only_a_message_from_a_person_is_refused_for_an_unknown_field(
    message: Message, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workflow, "now", lambda: datetime(2026, 1, 1, tzinfo=UTC))
    data = json.dumps({**message.example, "later": 1})
    payload = Payload(metadata={"encoding": b"json/plain"}, data=data.encode())
    inbox = Inbox([message], MessageLog())
    if message.sender is Sender.PERSON:
        with pytest.raises(ApplicationError, match="later"):
            inbox.open(message, RawValue(payload))
    else:
        assert inbox.open(message, RawValue(payload)).message is message
