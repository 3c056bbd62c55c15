"""Losses are told apart by their signs, and only a lasting one is a lost region."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from durable.model.fleet.region_life import RegionFact
from durable.model.ids import ActorId, NodeId, RegionId, ZoneId
from durable.model.recovery.detection import (
    LossKind,
    RecoveryPolicy,
    RegionMaintenance,
    RegionSigns,
    Suspicion,
    ZoneSigns,
)
from durable.model.recovery.recoveries import Recovery, RecoveryPhase
from durable.model.states import RegionState
from durable.planners.recovery.detection import (
    grace_seconds,
    is_due,
    is_of,
    judge,
    judge_alone,
    keep_watching,
    must_renew,
    next_suspicion,
)

POLICY = RecoveryPolicy()
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
EAST, WEST, EU = RegionId("us-east"), RegionId("us-west"), RegionId("eu-central")


def zones(*counts: tuple[int, int]) -> tuple[ZoneSigns, ...]:
    """Live and lapsed nodes of zone a, b, and so on."""
    return tuple(
        ZoneSigns(zone=ZoneId(f"zone-{letter}"), live=live, lapsed=lapsed)
        for letter, (live, lapsed) in zip("abcd", counts, strict=False)
    )


def signs(region: RegionId = EAST, **seen: Any) -> RegionSigns:
    """A region that is well, but for what the case says."""
    well: dict[str, Any] = {
        "zones": zones((3, 0), (3, 0), (3, 0)),
        "hosts": 3,
        "worker_polls": True,
        "lease_lapsed_seconds": -5.0,
        "watch_age_seconds": 1.0,
    }
    return RegionSigns(region=region, **(well | seen))


GONE: dict[str, Any] = {"zones": zones((0, 3), (0, 3), (0, 3)), "silent_hosts": 3}
AWAY: dict[str, Any] = {"database_answers": False, "zones": (), "hosts": 0}
LAPSED: dict[str, Any] = {"lease_lapsed_seconds": 4.0}
# With its worker gone as well, nothing suggests that only the agents are being replaced.
ALL_GONE: dict[str, Any] = GONE | LAPSED | {"worker_polls": False}


@pytest.mark.parametrize(
    ("seen", "kind"),
    [
        ({}, LossKind.HEALTHY),
        ({"zones": zones((2, 1), (3, 0))}, LossKind.NODE),
        # One agent's host is sick: a third of the nodes, in every zone.
        ({"zones": zones((2, 1), (2, 1), (2, 1)), "silent_hosts": 1}, LossKind.NODE),
        ({"zones": zones((0, 3), (3, 0), (3, 0)), "silent_hosts": 1}, LossKind.ZONE),
        # A zone of one node is one node.
        ({"zones": zones((0, 1), (3, 0))}, LossKind.NODE),
        ({"zones": zones((0, 3), (0, 3), (2, 1))}, LossKind.ZONE),
        (GONE, LossKind.REGION),
        ({"zones": zones((1, 9), (1, 9)), "silent_hosts": 3}, LossKind.REGION),
        (GONE | LAPSED | {"worker_polls": False}, LossKind.REGION),
        ({"watch_age_seconds": 200.0}, LossKind.WATCH),
        ({"worker_polls": False}, LossKind.WORKER),
        # It polls, but is blind towards the global side.
        (LAPSED, LossKind.WORKER),
        ({"worker_polls": False, "watch_age_seconds": 200.0} | LAPSED, LossKind.WORKER),
        (AWAY | LAPSED, LossKind.DATABASE),
        (AWAY | LAPSED | {"worker_polls": None}, LossKind.DATABASE),
        (AWAY | LAPSED | {"worker_polls": False}, LossKind.REGION),
        # Its worker reaches it, so it is the way from here that is cut.
        (AWAY, LossKind.OBSERVER),
        # Nothing to look at never reads as healthy.
        ({"zones": ()}, LossKind.NO_NODES),
        ({"zones": zones((0, 0))}, LossKind.NO_NODES),
    ],
)
def test_each_loss_has_its_own_name(seen: dict[str, Any], kind: LossKind) -> None:
    verdict = judge_alone(signs(**seen), POLICY)
    assert verdict.kind is kind
    assert verdict.sentence
    assert verdict.is_suspected is (kind in (LossKind.REGION, LossKind.DATABASE))


@pytest.mark.parametrize(
    ("seen", "renews", "goes_on"),
    [
        ({"worker_polls": False}, True, True),
        # Temporal does not answer, and nobody has renewed for long.
        (LAPSED | {"worker_polls": None}, True, False),
        (LAPSED | {"worker_polls": False}, True, False),
        ({"worker_polls": False, "lease_lapsed_seconds": -100.0}, False, True),
        ({"worker_polls": False, "lease_lapsed_seconds": None}, False, True),
        # It works alone, which its lease bounds.
        (LAPSED, False, False),
    ],
)
def test_the_lease_of_a_region_without_a_worker_is_renewed_for_it(
    seen: dict[str, Any], renews: bool, goes_on: bool
) -> None:
    verdict = judge_alone(signs(**seen), POLICY)
    assert verdict.kind is LossKind.WORKER
    assert must_renew(verdict, lease_seconds=120) is renews
    assert ("What runs there goes on." in verdict.sentence) is goes_on


@pytest.mark.parametrize("seen", [{}, GONE | LAPSED, AWAY | LAPSED])
def test_no_other_lease_is_renewed_from_outside(seen: dict[str, Any]) -> None:
    assert not must_renew(judge_alone(signs(**seen), POLICY), lease_seconds=120)


def test_a_lost_zone_is_named() -> None:
    verdict = judge_alone(signs(zones=zones((3, 0), (0, 3), (3, 0))), POLICY)
    assert verdict.zones == ("zone-b",)
    assert "zone-b" in verdict.sentence


def test_nobody_is_lost_when_nobody_looks_well() -> None:
    everywhere = [signs(region, **GONE) for region in (EAST, WEST, EU)]
    verdicts = judge(everywhere, POLICY)
    assert {one.kind for one in verdicts.values()} == {LossKind.OBSERVER}


def test_an_only_region_is_not_fenced_by_itself() -> None:
    assert judge([signs(**GONE)], POLICY)[EAST].kind is LossKind.OBSERVER


def test_a_second_region_is_lost_while_a_third_is_well() -> None:
    seen = [signs(EAST, **GONE, is_fenced=True), signs(WEST, **GONE), signs(EU)]
    assert judge(seen, POLICY)[WEST].kind is LossKind.REGION


def test_a_fenced_region_is_no_witness_that_the_observer_sees() -> None:
    seen = [signs(EAST, is_fenced=True), signs(WEST, **GONE)]
    assert judge(seen, POLICY)[WEST].kind is LossKind.OBSERVER


# ── over time ───────────────────────────────────────────────────────────────────────────────────


def after(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def follow(*seen: tuple[float, dict[str, Any]]) -> Suspicion | None:
    suspicion = None
    for seconds, what in seen:
        verdict = judge_alone(signs(**what), POLICY)
        suspicion = next_suspicion(suspicion, verdict, after(seconds), POLICY)
    return suspicion


def test_a_loss_counts_from_its_first_sign() -> None:
    suspicion = follow((0, ALL_GONE), (3, ALL_GONE), (6, ALL_GONE))
    assert suspicion is not None
    assert suspicion.since == NOW
    assert not is_due(suspicion, after(9), after(-60), POLICY)
    assert is_due(suspicion, after(10), after(-60), POLICY)


def test_the_loss_was_when_the_region_was_last_heard_of() -> None:
    suspicion = follow((0, GONE | {"silent_seconds": 15.0}), (9, GONE | {"silent_seconds": 24.0}))
    assert suspicion is not None
    assert suspicion.lost_at == after(-15)
    # Cut off with its own database: the lease lapsed 4 s ago, and was renewed 124 s ago.
    cut_off = follow((0, AWAY | LAPSED | {"last_sign_seconds": 124.0}))
    assert cut_off is not None
    assert cut_off.lost_at == after(-124)


@pytest.mark.parametrize(
    ("expires", "watched", "sign"),
    [
        (None, None, None),
        (-45, None, -165),
        (-45, -150, -150),
        (-45, -200, -165),
        (None, -30, -30),
    ],
)
def test_the_last_sign_of_a_region_is_a_renewal_or_a_look_and_not_the_end_of_its_lease(
    expires: int | None, watched: int | None, sign: int | None
) -> None:
    fact = RegionFact(
        region=EAST,
        epoch=1,
        state=RegionState.OPEN,
        since=NOW,
        reason="",
        evidence={},
        lease_expires_at=None if expires is None else after(expires),
        lease_seconds=None if expires is None else 120.0,
        watched_at=None if watched is None else after(watched),
        read_at=NOW,
    )
    assert fact.last_sign_at == (None if sign is None else after(sign))
    assert fact.has_lapsed is (expires is not None)


def test_a_region_that_comes_and_goes_is_one_loss() -> None:
    flapping = follow((0, ALL_GONE), (3, {}), (6, ALL_GONE))
    assert flapping is not None
    assert flapping.since == NOW
    assert is_due(flapping, after(11), after(-60), POLICY)


def test_a_region_that_is_back_is_not_lost_while_it_proves_itself() -> None:
    suspicion = follow((0, GONE), (3, {}))
    assert suspicion is not None
    assert not is_due(suspicion, after(60), after(-60), POLICY)
    assert follow((0, GONE), (3, {}), (13, {})) is None


def test_who_cannot_see_neither_confirms_nor_forgets() -> None:
    blind = follow((0, GONE), (3, AWAY), (60, {"zones": ()}))
    assert blind == follow((0, GONE))


@pytest.mark.parametrize(
    ("epoch", "phase", "changed", "is_known"),
    [
        (2, RecoveryPhase.SUSPECTED, -60, True),
        (2, RecoveryPhase.MOVING, 5, True),
        (2, RecoveryPhase.VETOED, 5, True),
        (2, RecoveryPhase.VETOED, -60, False),
        (2, RecoveryPhase.DISMISSED, -60, False),
        (3, RecoveryPhase.MOVING, 5, False),
    ],
)
def test_a_loss_is_known_by_the_row_of_its_recovery(
    epoch: int, phase: RecoveryPhase, changed: float, is_known: bool
) -> None:
    suspicion = follow((0, GONE))
    assert suspicion is not None
    recovery = Recovery(
        region=EAST,
        epoch=epoch,
        phase=phase,
        actor=ActorId("controller:detection"),
        reason="a test",
        lost_at=after(-90),
        started_at=after(-90),
        changed_at=after(changed),
    )
    assert is_of(recovery, suspicion) is is_known


def test_who_was_away_watches_for_a_while_first() -> None:
    suspicion = follow((0, ALL_GONE))
    assert suspicion is not None
    assert not is_due(suspicion, after(100), after(95), POLICY)
    assert is_due(suspicion, after(106), after(95), POLICY)


def test_a_gap_in_watching_begins_it_anew() -> None:
    assert keep_watching(None, None, NOW) == NOW
    assert keep_watching(NOW, after(2), after(4)) == NOW
    assert keep_watching(NOW, after(2), after(20)) == after(20)
    assert keep_watching(NOW, after(2), after(-3600)) == after(-3600), "the clock went back"


def test_a_suspicion_is_counted_again_after_the_clock_went_back() -> None:
    """Else it would last for as much longer before it is due."""
    suspected = follow((0, GONE), (-3600, GONE))
    assert suspected is not None
    assert suspected.since == after(-3600)
    assert suspected.lost_at <= after(-3600)
    grace = grace_seconds(suspected.verdict, POLICY)
    assert is_due(suspected, after(-3600 + grace), after(-3600), POLICY)


def test_the_suspicion_ends_with_the_fence() -> None:
    assert follow((0, GONE), (10, GONE | {"is_fenced": True})) is None
    anew = follow((0, GONE), (10, GONE | {"epoch": 2}))
    assert anew is not None
    assert anew.since == after(10)


@pytest.mark.parametrize(
    ("seen", "seconds"),
    [
        # All else of the region is well: every agent at once may only be restarting.
        (GONE, POLICY.agents_grace_seconds),
        (GONE | {"hosts": 1, "silent_hosts": 1}, POLICY.agents_grace_seconds),
        (GONE | LAPSED, POLICY.grace_seconds),
        (GONE | {"worker_polls": None}, POLICY.grace_seconds),
        (GONE | {"worker_polls": False}, POLICY.grace_seconds),
        # One of two agents is sick, and hosted nearly all nodes.
        (
            {"zones": zones((1, 9)), "hosts": 2, "silent_hosts": 1},
            POLICY.lone_host_grace_seconds,
        ),
        ({"zones": zones((1, 9)), "hosts": 3, "silent_hosts": 2}, POLICY.grace_seconds),
        # With its worker gone too, it is more than one host.
        (GONE | LAPSED | {"hosts": 1, "worker_polls": False}, POLICY.grace_seconds),
        (AWAY | LAPSED, POLICY.database_grace_seconds),
    ],
)
def test_how_long_signs_must_last_depends_on_what_else_they_could_mean(
    seen: dict[str, Any], seconds: float
) -> None:
    assert grace_seconds(judge_alone(signs(**seen), POLICY), POLICY) == seconds


def test_agents_that_are_silent_for_25_seconds_are_not_a_lost_region() -> None:
    """They are being replaced: worker, database and lease of the region live."""
    silent = follow((0, GONE))
    assert silent is not None
    assert not is_due(silent, after(25), NOW, POLICY)
    assert is_due(silent, after(POLICY.agents_grace_seconds), NOW, POLICY)


MARK = RegionMaintenance(
    since=NOW, until=NOW + timedelta(hours=1), reason="new kernels", actor=ActorId("person:ann")
)


@pytest.mark.parametrize("seen", [GONE, GONE | LAPSED | {"worker_polls": False}, AWAY | LAPSED])
def test_what_is_silent_in_maintenance_is_not_lost(seen: dict[str, Any]) -> None:
    lost, marked = signs(**seen), signs(**seen, maintenance=MARK)
    assert judge_alone(lost, POLICY).is_suspected
    verdict = judge_alone(marked, POLICY)
    assert (verdict.kind, verdict.is_suspected) == (LossKind.MAINTENANCE, False)
    assert "by person:ann: new kernels" in verdict.sentence
    assert follow((0, seen | {"maintenance": MARK})) is None


def test_a_suspicion_counts_from_the_end_of_the_maintenance() -> None:
    marked = GONE | {"maintenance": MARK, "silent_seconds": 600.0}
    suspicion = follow((0, marked), (20, GONE | {"silent_seconds": 620.0}))
    assert suspicion is not None
    assert (suspicion.since, suspicion.lost_at) == (after(20), after(-600))


def test_what_is_well_in_maintenance_is_healthy() -> None:
    assert judge_alone(signs(maintenance=MARK), POLICY).kind is LossKind.HEALTHY


def test_silent_nodes_are_named_as_evidence() -> None:
    seen = signs(zones=zones((2, 1)), silent_nodes=(NodeId("us-east-a-1"),))
    assert "us-east-a-1" in judge_alone(seen, POLICY).sentence
