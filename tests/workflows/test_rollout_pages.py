"""What an operator reads of a rollout on the workload's page, and what to send next."""

import re
from datetime import UTC, datetime
from typing import Any

import pytest

from durable.model.ids import ActorId, RegionId, TenantId, WorkloadName
from durable.model.work.phases import WorkloadPhase
from durable.model.work.rollout import RolloutPause, RolloutProgress, RolloutState, RolloutStep
from durable.model.work.workload import WorkloadSpec
from durable.reports.report import line, plain
from durable.signals.payloads import RollBack
from durable.signals.status import RegionProgress, ShareProgress, WorkloadStatus
from tests.workflows.test_pages import page_of

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
EAST, WEST = RegionId("east"), RegionId("west")
PAUSE = RolloutPause(actor=ActorId("ann"), reason="[look](x)", since=NOON)


def state(**values: Any) -> RolloutState:
    return RolloutState.model_validate({"started_at": NOON, "progressed_at": NOON, **values})


def at(step: RolloutStep) -> RolloutProgress:
    return RolloutProgress(
        step=step, region=EAST, replaced=1, wanted=4, outdated=2, leaving=1, surge=2,
        surge_available=1, available=4, must_be_available=3,
    )  # fmt: skip


def share(generation: int, region: RegionId, serving: int) -> ShareProgress:
    return ShareProgress(
        generation=generation, region=region, serving=serving, ready=serving, bound=serving
    )


def workload(**values: Any) -> WorkloadStatus:
    """Generation 2 of four replicas in two regions; a case shows only what matters to it."""
    usual: dict[str, Any] = {
        "tenant": TenantId("risk"),
        "workload": WorkloadName("api"),
        "generation": 2,
        "observed_generation": 2,
        "stable_generation": 1,
        "phase": WorkloadPhase.ROLLING,
        "wanted": 4,
        "regions": (RegionProgress(region=EAST, wanted=2), RegionProgress(region=WEST, wanted=2)),
        "conditions": (),
        "spec": WorkloadSpec.model_validate({"replicas": 4, "resources": {"cpu": 1}}),
        "completed": 0,
        "deleting": False,
    }
    return WorkloadStatus(**{**usual, **values})


ROLLING = {"rollout": state(), "progress": at(RolloutStep.REPLACING)}
SHARES = (share(1, EAST, 1), share(1, WEST, 2), share(2, EAST, 1))


def offered(page: str) -> list[str]:
    """The messages that the page puts first."""
    first = page.split("### Messages: ")[1].split("### ")[0]
    return re.findall(r"^- `([a-z_]+)`", first, re.MULTILINE)


def test_a_rollout_shows_its_step_what_it_waits_for_and_what_must_stay() -> None:
    page = page_of(workload(**ROLLING))
    assert "Generation 2 is being rolled out; 1 was the last good one." in page
    assert "**Replacing in east: 1 of 4 replicas replaced and available;" in page
    assert "1 of 4 replaced; 4 are available and at least 3 have to be" in page
    assert "1 of 2 surge replicas are available" in page


def test_every_open_generation_is_counted_with_links_to_its_placements() -> None:
    page = page_of(workload(**ROLLING, shares=SHARES))
    assert "**Generation 1**: 3 serving, 3 ready, 3 bound" in page
    assert "**Generation 2**, the wanted one: 1 serving, 1 ready, 1 bound" in page
    for placement in ("g1/east", "g1/west", "g2/east"):
        assert f"[placement/risk/api/{placement}](/namespaces/" in page
    assert "g2/west" not in page, "nothing runs there yet"


def test_without_a_rollout_there_is_nothing_of_it_on_the_page() -> None:
    page = page_of(workload(shares=(share(2, EAST, 4),)))
    assert "### Rollout" not in page
    assert "### Generations" not in page


def test_a_pause_names_who_paused_it_and_has_no_effect_on_the_page() -> None:
    rollout = {"rollout": state(pause=PAUSE), "progress": at(RolloutStep.PAUSED)}
    page = page_of(workload(**rollout))
    since = "since 2026-01-01 12:00:00Z; nothing more is replaced until `resume`, and"
    assert rf"**Paused** by ann: \[look\](x), {since}" in page


@pytest.mark.parametrize(
    ("values", "first"),
    [
        (ROLLING, ["pause", "rollback", "apply"]),
        (
            {"rollout": state(), "progress": at(RolloutStep.PAUSE_POINT)},
            ["promote", "pause", "rollback", "apply"],
        ),
        (
            {"rollout": state(pause=PAUSE), "progress": at(RolloutStep.PAUSED)},
            ["resume", "rollback", "apply"],
        ),
        ({"rollout": state(rollback="it was bad")}, ["apply", "scale"]),
        ({}, ["scale", "apply", "replace", "rollback"]),
        ({"generation": 1}, ["scale", "apply", "replace"]),
        ({"progress": at(RolloutStep.SURGING)}, ["scale", "apply", "replace", "rollback"]),
    ],
    ids=["rolling", "pause-point", "paused", "rollback", "settled", "first", "replacing"],
)
def test_messages_that_make_sense_now_come_first(values: dict[str, Any], first: list[str]) -> None:
    page = page_of(workload(**values))
    assert offered(page) == first
    others = re.findall(r"^- `([a-z_]+)`: ", page.split("### Other messages")[1], re.MULTILINE)
    assert "delete" in others
    assert not set(others) & set(first)


@pytest.mark.parametrize(("stable", "to"), [(1, 1), (2, None), (None, None)])
def test_a_rollback_can_be_pasted_as_it_is(stable: int | None, to: int | None) -> None:
    page = page_of(workload(**ROLLING, stable_generation=stable))
    found = re.search(r"- `rollback`: .*?`({.*})`", page)
    assert found is not None
    payload = RollBack.model_validate_json(found[1])
    assert (payload.to, payload.request_id) == (to, "ui-1-rollback")


def test_going_back_says_why() -> None:
    page = page_of(workload(generation=1, rollout=state(rollback="it was bad")))
    assert "**Going back** to generation 1: it was bad" in page
    assert "The next step is being planned." in page


def test_a_failure_with_nothing_to_go_back_to_is_not_called_going_back() -> None:
    failed = {"rollout": state(rollback="it was bad"), "stable_generation": None}
    page = page_of(workload(**failed))
    assert "**Generation 2 has failed**: it was bad; no other one was ever good" in page
    assert "Going back" not in page


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("run `durable get drains --all`.", "run `durable get drains --all`."),
        ("`[x](y)` and [x](y)", r"`[x](y)` and \[x\](y)"),
        ("an open `code and *this*", r"an open \`code and \*this\*"),
        ("``two`` of them", r"\`\`two\`\` of them"),
    ],
)
def test_a_command_in_a_sentence_stays_one_that_can_be_pasted(text: str, shown: str) -> None:
    assert line(text) == shown
    assert plain(shown) == text
