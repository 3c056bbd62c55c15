"""What a replica does when it is cut off, and when it is back: a contradiction is refused."""

from typing import Any

import pytest
from pydantic import ValidationError

from durable.model.work.running import OnReconnect, Run
from durable.model.work.workload import WorkloadSpec


def spec(**fields: Any) -> WorkloadSpec:
    return WorkloadSpec.model_validate({"replicas": 1, "resources": {"cpu": 1}, **fields})


@pytest.mark.parametrize(
    ("fields", "stays"),
    [
        ({}, OnReconnect.REPLACEMENT),
        ({"on_disconnect": "stop"}, OnReconnect.REPLACEMENT),
        ({"on_disconnect": "stop", "on_reconnect": "replacement"}, OnReconnect.REPLACEMENT),
        ({"on_reconnect": "original"}, OnReconnect.ORIGINAL),
    ],
)
def test_the_replacement_stays_unless_the_original_is_asked_for(
    fields: dict[str, Any], stays: OnReconnect
) -> None:
    assert Run.model_validate(fields).on_reconnect is stays


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        (
            {"run": {"on_disconnect": "stop", "on_reconnect": "original"}},
            "on_reconnect: got original beside on_disconnect: stop, which leaves no original; "
            "allowed: on_disconnect: keep, or omit on_reconnect",
        ),
        (
            {"kind": "job", "run": {"on_reconnect": "original"}},
            "got original for a job; allowed: replacement, or omit it",
        ),
    ],
)
def test_an_original_that_cannot_be_kept_is_refused(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValidationError) as refused:
        spec(**fields)
    assert sentence in str(refused.value)
