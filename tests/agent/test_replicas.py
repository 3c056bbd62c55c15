"""Which changes are still unreported, and what serves as evidence."""

from durable.agent.driver import as_evidence
from durable.agent.replicas import PendingReports
from durable.validation.text import PLAIN_TEXT


def test_only_the_newest_change_of_a_token_is_pending_and_a_late_answer_settles_nothing_newer() -> (
    None
):
    pending = PendingReports()
    pending.put(7)
    ((token, first),) = pending.in_order()
    pending.put(7)
    ((_, second),) = pending.in_order()
    assert second > first

    pending.accepted(token, first)
    assert pending.in_order() == [(7, second)]
    pending.accepted(token, second)
    assert len(pending) == 0


def test_any_text_makes_evidence() -> None:
    assert as_evidence("a\nb\x00c\t d") == "a b c d"
    assert len(as_evidence("x" * 10_000)) == 500
    assert as_evidence(" \n") == "no evidence was given"
    for odd in ("e\u0301", "\ud800", "\u200b", "\u212b" * 600):
        assert PLAIN_TEXT.validate_python(as_evidence(odd))
