"""An intent's key and hash are what makes sending it again safe, so they never drift."""

from typing import Any

import pytest
from pydantic import ValidationError

from durable.model.fleet.labels import LabelKey, LabelValue
from durable.model.ids import ZoneId
from durable.model.placement.intents import Release, Requirements, Reserve

IDENTITY: dict[str, Any] = {
    "region": "us-east", "tenant": "risk", "workload": "api", "generation": 3, "slot": 2,
    "attempt": 4, "epoch": 1, "actor": "placement", "evidence": "best score",
}  # fmt: skip

RESERVE: dict[str, Any] = {
    **IDENTITY, "node": "n1", "resources": {"cpu": 1, "memory": "1Gi"}, "priority": 100,
    "policy_revision": 1, "lease_ttl_seconds": 30,
}  # fmt: skip


def reserve(**change: Any) -> Reserve:
    return Reserve.model_validate({**RESERVE, **change})


def test_the_key_names_the_step_of_the_attempt() -> None:
    assert str(reserve().key) == "risk/api/g3/s2/a4/reserve"
    assert str(reserve(ordinal=2).key) == "risk/api/g3/s2/a4/reserve.2"
    release = Release.model_validate({**IDENTITY, "token": 7, "cause": "node_lost"})
    assert str(release.key) == "risk/api/g3/s2/a4/release-node_lost"


def test_the_sender_and_its_reason_do_not_change_the_request() -> None:
    again = reserve(actor="another", evidence="a retry", epoch=2)
    assert again.payload_sha256 == reserve().payload_sha256
    assert reserve(node="n2").payload_sha256 != reserve().payload_sha256


def test_equal_requirements_have_equal_hashes_however_they_are_written() -> None:
    one = Requirements(
        zones=(ZoneId("b"), ZoneId("a"), ZoneId("b")),
        labels={LabelKey("x"): LabelValue("1"), LabelKey("y"): LabelValue("2")},
    )
    other = Requirements(
        zones=(ZoneId("a"), ZoneId("b")),
        labels={LabelKey("y"): LabelValue("2"), LabelKey("x"): LabelValue("1")},
    )
    assert one == other
    assert reserve(requirements=one).payload_sha256 == reserve(requirements=other).payload_sha256


def test_the_hash_of_a_released_version_is_pinned() -> None:
    """Intents in flight outlive an upgrade: a change here needs a way to know the old hashes."""
    assert reserve().payload_sha256.hex() == PINNED


PINNED = "2127133d8a6a85b3646185e1b457ed97fcc588f58137a628203089c7ddc80be6"


@pytest.mark.parametrize("evidence", ["", "   ", "a\x00b", "line\nbreak", "e\u0301", "x" * 501])
def test_hidden_and_endless_evidence_is_refused(evidence: str) -> None:
    with pytest.raises(ValidationError):
        reserve(evidence=evidence)
