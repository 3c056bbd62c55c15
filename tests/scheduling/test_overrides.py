"""What people decided for a while changes a decision: holds, draws, gates and priorities."""

from datetime import UTC, datetime

import pytest

from durable.model.placement.pending_reasons import PendingCode
from durable.model.resources import NOTHING, Amounts
from durable.scheduling.snapshot.region import EmergencyDraw, Snapshot
from durable.scheduling.work_overrides import ends_after, override_fields
from tests.scheduling.world import (
    NOW,
    REGION,
    node,
    override,
    places,
    region,
    request,
    said,
    taint,
    used,
)

ONE = used(cpu=1, memory=1)
TWO = used(cpu=2, memory=2)


def test_a_held_workload_gets_nothing_and_is_told_until_when() -> None:
    proposal = region(node()).decide(request(2, overrides=[override(holds=True)]))
    assert places(proposal) == {}
    assert proposal.pending is not None
    assert proposal.pending.code is PendingCode.HELD
    assert proposal.pending.waiting_helps
    assert "Held by ann until" in said(proposal)


def test_a_draw_lets_more_through_than_the_grant_has_left() -> None:
    full = region(node(), grant=TWO, in_use=TWO)
    assert places(full.decide(request(2))) == {}
    assert len(places(full.decide(request(2, draws=[ONE])))) == 1
    assert len(places(full.decide(request(3, draws=[ONE, TWO])))) == 3


@pytest.mark.parametrize(
    ("draws", "overdrawn", "placed"),
    [
        ([], NOTHING, 0),
        ([ONE], NOTHING, 1),
        ([TWO], NOTHING, 2),
        ([ONE, ONE], NOTHING, 2),
        # A draw that is used up, and one that is over.
        ([NOTHING], NOTHING, 0),
        ([], ONE, 0),
        ([ONE], ONE, 1),
    ],
)
def test_what_fits_a_draw_needs_no_grant_at_all(
    draws: list[Amounts], overdrawn: Amounts, placed: int
) -> None:
    ungranted = region(node(), grant=None)
    proposal = ungranted.decide(request(2, draws=draws, overdrawn=overdrawn))
    assert len(places(proposal)) == placed
    code = None if proposal.pending is None else proposal.pending.code
    assert code is (None if placed == 2 else PendingCode.NO_GRANT)


def test_what_runs_on_a_draw_that_is_over_counts_against_the_grant() -> None:
    free = region(node(), grant=TWO)
    assert len(places(free.decide(request(2)))) == 2
    assert len(places(free.decide(request(2, overdrawn=ONE)))) == 1
    assert places(free.decide(request(2, overdrawn=TWO))) == {}


def test_gates_open_only_as_far_as_the_policy_lets_go_of_them() -> None:
    spread = {"zone_max_skew": 1}
    two = region(node("n1"), node("n2", zone="b", used=used(cpu=8, memory=32)))
    assert len(places(two.decide(request(2, spread=spread)))) == 1
    opened = [override(skips=["spread"])]
    assert len(places(two.decide(request(2, spread=spread, overrides=opened)))) == 2
    crashed = {"crashes": {0: "n1"}}
    alone = region(node("n1"))
    assert places(alone.decide(request(1, **crashed))) == {}
    assert places(alone.decide(request(1, overrides=[override(skips=["crashes"])], **crashed)))
    tainted = region(node(taints=[taint("shape", "gpu")]))
    glass = [override(skips=["taints"])]
    assert places(tainted.decide(request(1, overrides=glass))) == {}, "the policy keeps this one"


def test_a_boost_raises_the_priority_up_to_the_highest() -> None:
    assert request(priority=100).priority == 100
    assert request(priority=100, overrides=[override(raises_priority=50)]).priority == 150
    assert request(priority=900, overrides=[override(raises_priority=500)]).priority == 1_000
    boosted = request(priority=100, urgency=20, overrides=[override(raises_priority=50)])
    assert (boosted.spec.priority, boosted.raised_by, boosted.priority) == (100, 70, 170)


def test_a_request_takes_what_is_in_force_at_the_moment_of_its_snapshot() -> None:
    snapshot = Snapshot.empty(REGION)
    assert override_fields(snapshot, "risk", "api") == {}
    snapshot.now = NOW
    one = override(holds=True)
    snapshot.overrides = (one,)
    snapshot.draws = (
        EmergencyDraw("risk", TWO, ONE, NOW + 1),
        EmergencyDraw("risk", TWO, ONE, NOW),
        EmergencyDraw("billing", TWO, TWO, NOW),
    )
    assert override_fields(snapshot, "risk", "api") == {
        "overrides": (one,), "draws": (ONE,), "overdrawn": ONE,
    }  # fmt: skip
    assert ends_after(snapshot, "risk", "api") == [3_600.0]
    snapshot.now = one.expires_at.timestamp()
    assert override_fields(snapshot, "risk", "api")["overrides"] == ()
    assert datetime.fromtimestamp(snapshot.now, UTC) == one.expires_at
