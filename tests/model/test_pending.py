"""A reason to wait travels as a code and parameters, and has a sentence wherever it is read."""

from datetime import UTC, datetime

import pytest
from pydantic import ValidationError

from durable.model.placement.pending import Pending
from durable.model.placement.pending_reasons import (
    CommitRefused,
    CrashBackoff,
    Details,
    Gang,
    Held,
    HeldBack,
    NoGrant,
    NoNode,
    PendingCode,
    Rejection,
    Shortage,
    Unreachable,
)
from durable.model.refusal import Refusal, RefusalCode
from durable.model.resources import Resources
from durable.validation.text import MAX_LENGTH

NO_NODE = NoNode(
    region="us-east",
    workload="risk/api",
    unplaced=2,
    slots=3,
    nodes=5,
    rejections=(Rejection(code="insufficient_cpu", words="insufficient cpu", nodes=4),),
    rejected=5,
    requested=Resources.of(4000, 1024),
    largest=Resources.of(2000, 8192),
)
SHORTAGE = Shortage(
    region="us-east",
    tenant="risk",
    left=Resources.of(1000, 1024),
    requested=Resources.of(1000),
    enough_for=1,
    slots=3,
)
HELD = Held(
    actor="person:ann", reason="INC-1", override="o-1", ends_at=datetime(2030, 1, 1, tzinfo=UTC)
)
FULL = Pending.because(PendingCode.CAPACITY, NO_NODE)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
REASONS: list[tuple[PendingCode, Details]] = [
    (PendingCode.CAPACITY, NO_NODE),
    (PendingCode.NODES_UNAVAILABLE, NO_NODE),
    (PendingCode.SPREAD, NO_NODE),
    (PendingCode.REGION_FENCED, NO_NODE),
    (PendingCode.NEVER_FITS, NO_NODE),
    (PendingCode.REQUIREMENTS, NO_NODE),
    (PendingCode.TAINTED, NO_NODE),
    (PendingCode.CRASHED, NO_NODE),
    (PendingCode.CRASHED, CrashBackoff(slots=2, failure="exit code 1", until=NOON)),
    (PendingCode.GRANT, SHORTAGE),
    (PendingCode.HEADROOM, SHORTAGE),
    (PendingCode.NO_GRANT, NoGrant(region="us-east", tenant="risk")),
    (PendingCode.GANG, Gang(size=3, slots=3, placeable=1, because=FULL.reason())),
    (PendingCode.PARALLELISM, HeldBack(slots=3, at_once=2)),
    (PendingCode.PARALLELISM, HeldBack(slots=1, at_once=0)),
    (PendingCode.HELD, HELD),
    (PendingCode.AUTHORITY_UNREACHABLE, Unreachable(error="The authority does not answer.")),
    (
        PendingCode.REGION_LEASE_LAPSED,
        CommitRefused(
            refusal=Refusal(code=RefusalCode.REGION_LEASE_LAPSED, sentence="It has lapsed.")
        ),
    ),
    (PendingCode.QUEUED, Details()),
    (
        PendingCode.CONFLICTS,
        CommitRefused(refusal=Refusal(code=RefusalCode.NODE_FULL, sentence="n1 is full.")),
    ),
]


def test_every_code_has_its_case() -> None:
    assert {code for code, _ in REASONS} == set(PendingCode)


@pytest.mark.parametrize(("code", "details"), REASONS)
def test_a_reason_survives_json_and_says_its_sentence_there(
    code: PendingCode, details: Details
) -> None:
    pending = Pending.because(code, details)
    assert Pending.model_validate_json(pending.model_dump_json()) == pending
    assert 0 < len(pending.sentence) <= MAX_LENGTH
    assert pending.model_dump(mode="json")["sentence"] == pending.sentence


def test_amounts_are_numbers_by_dimension() -> None:
    assert FULL.parameters["requested"] == {"cpu_millis": 4000, "memory_mib": 1024, "gpus": 0}
    assert FULL.parameters["largest"] == {"cpu_millis": 2000, "memory_mib": 8192, "gpus": 0}
    assert FULL.sentence == (
        "No node in us-east can take 2 of 3 slots of risk/api (5 of 5 nodes: 4 insufficient cpu, "
        "1 for other reasons); wait for room, request less, or add nodes."
    )


def test_a_gang_says_what_keeps_the_others() -> None:
    gang = Pending.because(
        PendingCode.GANG, Gang(size=3, slots=3, placeable=1, because=FULL.reason())
    )
    assert gang.parameters["because"] == {"code": "capacity", "parameters": dict(FULL.parameters)}
    assert gang.sentence.endswith(FULL.sentence)


def test_parameters_of_another_code_are_refused() -> None:
    with pytest.raises(ValidationError):
        Pending(code=PendingCode.HELD, parameters=FULL.parameters)


def test_a_sentence_is_cut_to_its_length() -> None:
    long = Pending.because(PendingCode.AUTHORITY_UNREACHABLE, Unreachable(error="x" * 501))
    assert len(long.sentence) == MAX_LENGTH
    assert long.sentence.endswith("...")
