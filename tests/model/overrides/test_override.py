"""What may become of an override: every move, who may make it, and what time says."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from durable.model.ids import ActorId, OverrideId, RegionId
from durable.model.operators.rights import OperatorKind
from durable.model.overrides.effects import Effects, OverrideScope
from durable.model.overrides.in_force import (
    RegionalOverride,
    concerning,
    holder,
    keeps_off,
    raised,
)
from durable.model.overrides.override import (
    Override,
    check_approval,
    check_extension,
    check_rejection,
    check_revocation,
    is_overdue,
)
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.states import OverrideState

T0 = datetime(2030, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
ANN, BOB = ActorId("ann"), ActorId("bob")
approve = partial(check_approval, kind=OperatorKind.PERSON)
extend = partial(check_extension, kind=OperatorKind.PERSON)


def override(**values: Any) -> Override:
    """Break-glass by ann, in force since T0 for an hour and at most four."""
    usual = {
        "id": "o-1", "kind": "break-glass", "scope": {"tenant": "risk"},
        "effect": {"gates": ["cordon"]}, "actor": "ann", "reason": "INC-1", "ttl": "1h",
        "approver": "bob", "state": "active", "proposed_at": T0, "activated_at": T0,
        "expires_at": T0 + HOUR, "latest_expiry": T0 + 4 * HOUR,
    }  # fmt: skip
    return Override.model_validate({**usual, **values})


PROPOSED = override(state="proposed", approver=None, activated_at=None)
ENDED = override(state="revoked", ended_at=T0, outcome="revoked by bob: done")


def code_of(check: Callable[[], object]) -> RefusalCode:
    with pytest.raises(RefusedError) as caught:
        check()
    return caught.value.refusal.code


def test_a_second_person_approves_in_time() -> None:
    approve(PROPOSED, BOB, T0)
    assert code_of(lambda: approve(PROPOSED, ANN, T0)) is RefusalCode.SELF_APPROVAL
    assert code_of(lambda: approve(PROPOSED, BOB, T0 + HOUR)) is RefusalCode.OVERRIDE_ENDED
    assert code_of(lambda: approve(override(), BOB, T0)) is RefusalCode.WRONG_STATE
    assert code_of(lambda: approve(ENDED, BOB, T0)) is RefusalCode.OVERRIDE_ENDED


def test_a_service_is_no_second_person() -> None:
    service = OperatorKind.SERVICE
    assert code_of(lambda: approve(PROPOSED, BOB, T0, kind=service)) is RefusalCode.NOT_ALLOWED
    glass = code_of(lambda: extend(override(), BOB, HOUR, T0, kind=service))
    assert glass is RefusalCode.NOT_ALLOWED
    hold = override(kind="hold", scope={"tenant": "risk", "workload": "api"}, effect={})
    assert extend(hold, BOB, HOUR, T0, kind=service) == T0 + 2 * HOUR, "which needs nobody else"


def test_only_a_proposal_is_rejected_and_only_what_lasts_is_revoked() -> None:
    check_rejection(PROPOSED, T0)
    check_revocation(PROPOSED, T0)
    check_revocation(override(), T0)
    assert code_of(lambda: check_rejection(override(), T0)) is RefusalCode.WRONG_STATE
    assert code_of(lambda: check_revocation(ENDED, T0)) is RefusalCode.OVERRIDE_ENDED
    late = T0 + HOUR
    assert code_of(lambda: check_revocation(override(), late)) is RefusalCode.OVERRIDE_ENDED


def test_an_extension_never_goes_past_the_maximum_of_its_kind() -> None:
    assert extend(override(), BOB, 3 * HOUR, T0) == T0 + 4 * HOUR
    too_long = 3 * HOUR + timedelta(seconds=1)
    assert code_of(lambda: extend(override(), BOB, too_long, T0)) is (RefusalCode.TTL_TOO_LONG)
    assert code_of(lambda: extend(PROPOSED, BOB, HOUR, T0)) is RefusalCode.WRONG_STATE
    late = T0 + HOUR
    assert code_of(lambda: extend(override(), BOB, HOUR, late)) is (RefusalCode.OVERRIDE_ENDED)


def test_break_glass_is_not_extended_by_the_person_who_proposed_it() -> None:
    assert code_of(lambda: extend(override(), ANN, HOUR, T0)) is RefusalCode.SELF_APPROVAL
    hold = override(kind="hold", scope={"tenant": "risk", "workload": "api"}, effect={})
    assert extend(hold, ANN, HOUR, T0) == T0 + 2 * HOUR


def test_time_has_the_last_word() -> None:
    assert override().is_in_force(T0)
    assert not override().is_in_force(T0 + HOUR)
    assert not PROPOSED.is_in_force(T0)
    assert not override(state="revoked", ended_at=T0).is_in_force(T0)
    assert is_overdue(override(), T0 + HOUR)
    assert is_overdue(PROPOSED, T0 + HOUR)
    assert not is_overdue(ENDED, T0 + HOUR)
    assert OverrideState.EXPIRED not in (override().state, PROPOSED.state)


def test_only_the_regions_that_are_meant_get_a_copy() -> None:
    regions = [RegionId("us-east"), RegionId("us-west")]
    assert override().regions(regions) == regions
    one = override(scope={"tenant": "risk", "region": "us-west"})
    assert one.regions(regions) == [RegionId("us-west")]
    assert override(kind="policy-freeze", scope={}, effect={}).regions(regions) == regions


def copy(name: str = "o-1", *, scope: dict[str, str] | None = None, **effects: Any) -> Any:
    return RegionalOverride(
        override=OverrideId(name),
        kind="hold",
        scope=OverrideScope.model_validate(scope or {}),
        effects=Effects.model_validate(effects),
        actor=ANN,
        reason="INC-1",
        expires_at=T0 + HOUR,
    )


def test_a_copy_concerns_its_scope_until_its_moment() -> None:
    copies = [copy("o-2", scope={"tenant": "risk"}), copy("o-1"), copy("o-3", scope={
        "tenant": "risk", "workload": "api"})]  # fmt: skip
    names = [one.override for one in concerning(copies, "risk", "api", T0)]
    assert names == ["o-1", "o-2", "o-3"]
    assert [one.override for one in concerning(copies, "risk", "web", T0)] == ["o-1", "o-2"]
    assert [one.override for one in concerning(copies, "billing", "api", T0)] == ["o-1"]
    assert concerning(copies, "risk", "api", T0 + HOUR) == ()
    assert concerning([copy(freezes_policy=True)], "risk", "api", T0) == ()


def test_break_glass_passes_holds_and_avoidance_and_nothing_else() -> None:
    hold, avoid = copy("o-1", holds=True), copy("o-2", avoid_zones=["a"])
    glass = copy("o-3", skips=["hold", "avoided"])
    assert holder((hold, avoid)) == hold
    assert keeps_off((hold, avoid), "a", "n1") == avoid
    assert keeps_off((hold, avoid), "b", "n1") is None
    assert holder((hold, glass)) is None
    assert keeps_off((avoid, glass), "a", "n1") is None


def test_raises_do_not_add_up_and_stop_at_the_top() -> None:
    assert raised(100, ()) == 100
    assert raised(100, (copy(raises_priority=50), copy(raises_priority=20))) == 150
    assert raised(900, (copy(raises_priority=500),)) == 1_000
