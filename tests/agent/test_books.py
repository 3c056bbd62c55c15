"""The agent's own memory: what is untold, until when a lease is trusted, what an end means."""

from pathlib import Path

import pytest

from durable.agent.drivers import StopOrder, as_evidence
from durable.agent.ending import end_of
from durable.agent.leases import Leases
from durable.agent.logs import bound_log
from durable.agent.outbox import Outbox
from durable.agent.replica_directory import ReplicaDirectory
from durable.model.ids import NodeId
from durable.model.states import ObservedState
from durable.validation.text import PLAIN_TEXT

N1, N2 = NodeId("n1"), NodeId("n2")


def test_only_the_newest_news_of_a_token_waits_and_late_answers_end_nothing_newer() -> None:
    outbox = Outbox()
    outbox.put(7)
    ((token, first),) = outbox.waiting()
    outbox.put(7)
    ((_, second),) = outbox.waiting()
    assert second > first

    outbox.heard(token, first)
    assert outbox.waiting() == [(7, second)]
    outbox.heard(token, second)
    assert len(outbox) == 0


def test_a_lease_is_trusted_from_when_it_was_asked_for() -> None:
    leases = Leases(trusted_seconds=10)
    leases.begun({N1: 1, N2: 1}, sent_at=100)
    # Its answer came at 109, which is of no interest.
    leases.renewed([N1], sent_at=105)
    assert leases.take_lapsed(109.9) == []
    assert leases.take_lapsed(110) == [N2]
    assert leases.take_lapsed(110) == [], "each is told once"
    assert dict(leases.sessions) == {N1: 1}
    # An answer that was overtaken by a later one shortens nothing.
    leases.renewed([N1], sent_at=101)
    assert leases.take_lapsed(114.9) == []


def test_a_lease_runs_on_when_its_session_was_ended_by_another() -> None:
    leases = Leases(trusted_seconds=10)
    leases.begun({N1: 1}, sent_at=0)
    leases.end_session(N1, 1)
    assert dict(leases.sessions) == {}
    assert leases.take_lapsed(10) == [N1]

    leases.begun({N1: 2}, sent_at=20)
    leases.end_session(N1, 1)
    assert dict(leases.sessions) == {N1: 2}, "the end of an old session ends no new one"


def test_an_agent_that_slept_through_its_lease_holds_nothing_though_nobody_told_it() -> None:
    leases = Leases(trusted_seconds=10)
    leases.begun({N1: 1}, sent_at=0)
    assert leases.holds(N1, 9.9)
    assert not leases.holds(N1, 10)
    assert not leases.holds(N2, 0)


@pytest.mark.parametrize(
    ("code", "order", "state"),
    [
        (0, None, ObservedState.STOPPED),
        (1, None, ObservedState.FAILED),
        (None, None, ObservedState.FAILED),
        (143, StopOrder(reason="asked"), ObservedState.STOPPED),
        (None, StopOrder(reason="asked"), ObservedState.STOPPED),
        (None, StopOrder(reason="fenced", ends_as=ObservedState.FAILED), ObservedState.FAILED),
        # A job that was done before it was cut off is done.
        (0, StopOrder(reason="fenced", ends_as=ObservedState.FAILED), ObservedState.STOPPED),
    ],
)
def test_an_end_is_judged_by_its_code_and_by_who_asked(
    tmp_path: Path, code: int | None, order: StopOrder | None, state: ObservedState
) -> None:
    if code is not None:
        (tmp_path / "exit").write_text(f"{code}\n")
    assert end_of(ReplicaDirectory(tmp_path), order)[0] is state


def test_any_text_makes_evidence() -> None:
    assert as_evidence("a\nb\x00c\t d") == "a b c d"
    assert len(as_evidence("x" * 10_000)) == 500
    assert as_evidence(" \n") == "nothing was said"
    for odd in ("e\u0301", "\ud800", "\u200b", "\u212b" * 600):
        assert PLAIN_TEXT.validate_python(as_evidence(odd))


def test_a_cut_log_keeps_its_newest_part(tmp_path: Path) -> None:
    log = tmp_path / "stdout.log"
    log.write_bytes(b"old" * 100 + b"new" * 10)
    assert bound_log(log, max_bytes=30)
    assert log.read_bytes() == b""
    assert (tmp_path / "stdout.log.1").read_bytes() == b"new" * 10
    assert not bound_log(log, max_bytes=30)
