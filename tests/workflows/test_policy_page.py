"""The page of a policy: state, what it waits for, what can be sent, each as it would be pasted."""

import json
import re

import pytest

from durable.model.ids import TenantId, WorkloadName
from durable.model.policy.rollout import (
    PolicyHealth,
    PolicyPhase,
    PolicyProgress,
    RolledBackShare,
    ShadowedWorkload,
    ShadowReport,
)
from durable.model.states import PolicyState
from durable.reports.describe import describe
from durable.signals.names import POLICY
from durable.signals.policies import PolicyStatus
from durable.signals.registry import messages_to
from tests.planners.policy_rollout.rollouts import EAST, T0, WEST, bake, regions, rollout

RISK, API = TenantId("risk"), WorkloadName("api")
STATES = regions(east=PolicyState.CANARY, west=PolicyState.PUBLISHED)


def page(progress: PolicyProgress) -> str:
    return describe(PolicyStatus(revision=5, progress=progress), T0).as_markdown("ui-1")


def test_it_says_where_the_revision_is_and_what_it_shows_there() -> None:
    shown = page(
        PolicyProgress(
            rollout=rollout(bake=bake(pending_percent_before=2.0), is_paused=True),
            regions=STATES,
            health=PolicyHealth(pending_percent=7.0, reserves=9, refused=1, place_seconds=3.2),
            waits_for="a person to promote it",
        )
    )
    for words in (
        "## Policy revision 5",
        "**canary**, **paused** since 2030-01-01 00:00:00Z, order 7",
        "By alice: INC-42",
        "**Waits**: a person to promote it",
        "- east: canary\n- west: published",
        "Needs the right `policy`.",
        "`durable sign policy/5 rollback 'JSON'`",
        "7 % wait (2 % before), 1 of 9 reservations refused, 3 s to place",
    ):
        assert words in shown


def test_it_lists_what_would_change_and_what_became_of_replicas() -> None:
    changed = ShadowedWorkload(tenant=RISK, workload=API, decisions=2, placed=4, moved=3, lost=1)
    shown = page(
        PolicyProgress(
            rollout=rollout(PolicyPhase.ROLLED_BACK),
            shadows=(
                ShadowReport(region=EAST, at=T0, decisions=2, unrepeatable=1, workloads=(changed,)),
                ShadowReport(region=WEST, at=T0, decisions=4),
            ),
            report=(
                RolledBackShare(
                    region=EAST, tenant=RISK, workload=API, decided_again=1, goes_on=2, replaced=3
                ),
            ),
            report_count=2,
        )
    )
    for words in (
        "### Shadow in east: 2 recent decisions made again, 1 not repeatable; 1 of 1 workload",
        "- risk/api: 3 of 4 replicas elsewhere, 0 more placed, 1 not placed",
        "No decision would change.",
        "- risk/api in east: 1 decided again, 2 go on, 3 replaced",
        "- and 1 more: `durable policy show 5`",
    ):
        assert words in shown


@pytest.mark.parametrize("phase", list(PolicyPhase))
def test_every_example_can_be_pasted_and_is_bound_to_what_the_page_shows(
    phase: PolicyPhase,
) -> None:
    shown = page(PolicyProgress(rollout=rollout(phase), regions=STATES))
    payloads = dict(re.findall(r"^- `(\w+)`: .* `(\{.*\})`$", shown, re.MULTILINE))
    people = {message.name: message for message in messages_to(POLICY) if message.verb}
    assert set(payloads) == set(people)
    for name, message in people.items():
        read = json.loads(payloads[name])
        message.payload.model_validate(read)
        assert read["after"] == 7


def test_what_others_wrote_has_no_effect_on_the_page() -> None:
    shown = page(PolicyProgress(rollout=rollout(reason="[x](http://evil) <b>")))
    assert "\\[x\\](http://evil) \\<b\\>" in shown
