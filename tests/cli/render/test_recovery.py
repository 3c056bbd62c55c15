"""A recovery that is read later says what was, and what is."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from durable.cli.render.plan import print_outlooks
from durable.cli.render.reports import print_recovery
from durable.model.ids import RegionId
from durable.model.recovery.readiness import LossOutlook
from durable.model.recovery.recoveries import RecoveryProgress

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
LATER = NOON + timedelta(seconds=30)


def printed(capsys: pytest.CaptureFixture[str], phase: str, **move: Any) -> str:
    moved = {
        "tenant": "risk", "workload": "api", "priority": 900, "replicas": 4, "slot_count": 2,
        "lost_count": 2,
        "moved_at": NOON, "recovered_at": LATER, "whole_at": LATER, "serving": 0,
    }  # fmt: skip
    recovery: dict[str, Any] = {
        "region": "east", "epoch": 2, "phase": phase, "actor": "ann", "reason": "INC-1",
        "lost_at": NOON, "started_at": NOON, "changed_at": LATER, "evidence": {},
    }  # fmt: skip
    report = {
        "workloads": 1, "moved": 1, "whole": 1, "critical": 1, "recovered": 1,
        "slowest_seconds": 30.0, "objective_replicas": 4, "objective_seconds": 300.0,
    }  # fmt: skip
    sent: dict[str, Any] = {"recovery": recovery, "report": report, "moves": [{**moved, **move}]}
    print_recovery(RecoveryProgress.model_validate(sent))
    return " ".join(capsys.readouterr().out.split())


def test_what_was_given_back_is_not_counted_elsewhere_any_more(
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = printed(capsys, "failed_back", returned_at=LATER)
    assert "1 of 1 critical workloads have served again elsewhere, the last 30.0 s after" in out
    assert "risk/api 900 4 2 given back 30.0 s yes" in out


def test_what_was_moved_counts_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    assert "risk/api 900 4 2 2 30.0 s yes" in printed(capsys, "holding", serving=2)


def test_readiness_says_what_it_does_not_check(capsys: pytest.CaptureFixture[str]) -> None:
    print_outlooks([LossOutlook(region=RegionId("east"), at=NOON, others=3)])
    out = " ".join(capsys.readouterr().out.split())
    assert "If east were lost, 3 other workloads there would move after the critical ones" in out
