"""The page of an override in the Temporal UI says what is so, and who may do what next."""

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

from durable.model.ids import RegionId
from durable.model.overrides.override import Override
from durable.reports.describe import describe
from durable.signals.overrides import ExtendOverride, OverrideStatus

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


def override(**values: Any) -> Override:
    usual = {
        "id": "o-1", "kind": "break-glass", "scope": {"tenant": "risk"},
        "effect": {"gates": ["cordon"]}, "actor": "ann", "reason": "INC-1", "ttl": "15m",
        "approver": "bob", "state": "active", "proposed_at": NOON, "activated_at": NOON,
        "expires_at": NOON + timedelta(minutes=15), "latest_expiry": NOON + timedelta(hours=4),
    }  # fmt: skip
    return Override.model_validate({**usual, **values})


def page(found: Override | None, **status: Any) -> str:
    return describe(OverrideStatus(override=found, **status), NOON).as_markdown("ui-1")


def test_nothing_is_proposed_yet() -> None:
    assert "Nothing has been proposed yet: send `propose`." in page(None)


def test_a_proposal_names_who_has_to_act_and_until_when() -> None:
    shown = page(override(state="proposed", approver=None, activated_at=None))
    assert "**proposed**; a person other than ann has to `approve` it before" in shown
    assert "2030-01-01 12:15:00Z (15m left when this was written)" in shown
    assert (
        shown.index("- `approve`") < shown.index("### Other messages") < shown.index("- `extend`")
    )


def test_each_message_names_its_right_and_how_to_sign_it() -> None:
    shown = page(override(state="proposed", approver=None, activated_at=None))
    assert "`durable sign override/o-1 approve 'JSON'`" in shown
    rights = dict(re.findall(r"^- `(\w+)`: .* Needs the right `([\w-]+)`\.", shown, re.MULTILINE))
    glass = "break-glass"
    assert rights == {
        "approve": "approve", "reject": "approve", "revoke": glass, "propose": glass,
        "extend": glass,
    }  # fmt: skip


def test_one_in_force_says_when_it_ends_and_how_far_it_may_be_extended() -> None:
    unreachable = {RegionId("west"): "no answer"}
    shown = page(override(), regions=[RegionId("east")], unreachable_regions=unreachable)
    assert "ends by itself at 2030-01-01 12:15:00Z" in shown
    assert "a second person may `extend` it up to 2030-01-01 16:00:00Z" in shown
    assert "Approved by bob" in shown
    assert "- east: has it\n- west: **unreachable**: no answer" in shown
    found = re.search(r"- `extend`: .*?`({.*})`", shown)
    assert found is not None
    assert ExtendOverride.model_validate(json.loads(found[1])).request_id == "ui-1-extend"


def test_one_that_has_ended_says_how() -> None:
    ended = override(state="revoked", ended_at=NOON, outcome="revoked by bob: [done](http://x)")
    shown = page(ended)
    assert "**revoked**; nothing is left to do" in shown
    assert r"revoked by bob: \[done\](http://x)" in shown
