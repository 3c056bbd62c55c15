"""What people read of a rollout, and what differs between two specs."""

from typing import Any

import pytest

from durable.cli.render.delays import describe_delay
from durable.cli.render.plan import print_plan
from durable.cli.render.progress import WaitTarget, counts_of
from durable.cli.render.reports import print_report
from durable.cli.render.spec_diff import differences, show_value
from durable.model.ids import RegionId, TenantId, WorkloadName
from durable.model.placement.pending_reasons import PendingCode
from durable.model.work.rollout import RolloutStep
from durable.plan.outlook import RolloutOutlook
from durable.plan.planner import Plan
from durable.plan.step import Action
from durable.reports.workload import describe_workload
from tests.model.pending import pending
from tests.workflows.test_rollout_pages import PAUSE, SHARES, at, state, workload

API = WaitTarget("risk", "api", "serving")


def shown(capsys: pytest.CaptureFixture[str], **values: Any) -> str:
    counts = {"bound": 4, "ready": 4, "serving": 4, "updated": 1}
    print_report(describe_workload(workload(**counts, shares=SHARES, **values)))
    return capsys.readouterr().out


def test_bound_ready_and_serving_are_kept_apart(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, rollout=state(), progress=at(RolloutStep.SURGING))
    assert "Generation 2 is being rolled out; 1 was the last good one." in text
    assert "Began 2026-01-01 12:00:00Z, made progress 2026-01-01 12:00:00Z." in text
    assert "1 of 4 replaced; 4 are available and at least 3 have to be" in text
    assert "1 of 2 surge replicas are available" in text
    assert "rolling: 4 serving, 4 ready, 4 bound of 4" in text
    assert "Generation 1: 3 serving, 3 ready, 3 bound" in text
    assert "Surging in east: 1 of 4 replicas replaced and available;" in text


def test_whoever_paused_it_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, rollout=state(pause=PAUSE), progress=at(RolloutStep.PAUSED))
    assert "Paused by ann: [look](x), since 2026-01-01 12:00:00Z" in text
    assert "It accepts now: resume, rollback, apply." in text


def test_a_failure_with_nothing_to_go_back_to_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    failed = {"rollout": state(rollback="bad"), "stable_generation": None}
    text = shown(capsys, **failed, progress=at(RolloutStep.REPLACING))
    assert "Generation 2 has failed: bad; no other one was ever good, so `apply` one" in text


def test_progress_says_how_many_are_replaced() -> None:
    rolling = workload(bound=5, ready=4, serving=4, progress=at(RolloutStep.REPLACING))
    assert counts_of(rolling, "serving") == "1 replaced, 5 bound, 4 ready, 4 serving of 4"


@pytest.mark.parametrize(
    ("step", "advice"),
    [
        (RolloutStep.PAUSED, "Resume it with `durable rollout resume risk/api`"),
        (RolloutStep.PAUSE_POINT, "Promote it with `durable rollout promote risk/api`"),
        (RolloutStep.BAKING, "It continues by itself"),
    ],
)
def test_whoever_waited_too_long_learns_what_to_do(step: RolloutStep, advice: str) -> None:
    late = {API: workload(rollout=state(), progress=at(step))}
    sentence = describe_delay([API], late, 5)
    assert advice in sentence
    assert "1 of 4 replicas replaced and available" in sentence


def outlook(**values: Any) -> RolloutOutlook:
    usual: dict[str, Any] = {
        "recreates": False,
        "surge": 1,
        "unavailable": 1,
        "keeps_serving": 3,
        "regions": ("west", "east"),
        "surge_fits": {"west": 1, "east": 0},
        "surge_waits": {"east": pending(PendingCode.CAPACITY, "No node has room.")},
    }
    return RolloutOutlook.model_validate({**usual, **values})


def test_a_plan_says_how_it_goes_and_where_no_surge_replica_fits(
    capsys: pytest.CaptureFixture[str],
) -> None:
    plan = Plan(
        tenant=TenantId("risk"),
        workload=WorkloadName("api"),
        generation=2,
        action=Action.ROLL_OUT,
        rollout=outlook(),
        regions=(),
    )
    print_plan(plan)
    text = capsys.readouterr().out
    assert "risk/api: roll out a new generation, generation 2" in text
    assert "Rolls out with up to 1 surge and 1 unavailable replicas; at least 3 replicas" in text
    assert "Regions in turn: west, east." in text
    assert "In east no surge replica fits now, so it goes on within what may be unavailable" in text


def test_an_outlook_without_any_slack_waits_for_room() -> None:
    assert (
        "it waits for room, because none may be unavailable" in outlook(unavailable=0).sentences[2]
    )
    assert outlook(recreates=True).sentences == [
        "All old replicas are stopped first; the new ones then start together."
    ]
    assert RegionId("east") in outlook().surge_waits


def test_only_what_differs_is_shown_by_its_path() -> None:
    old: dict[str, Any] = {
        "run": {"image": "a:1", "environment": {"A": "1"}},
        "replicas": 3,
        "tolerations": [],
    }
    new: dict[str, Any] = {
        "run": {"image": "a:2", "environment": {}},
        "replicas": 3,
        "tolerations": [{"key": "k"}],
    }
    found = {one.field: (one.before, one.after) for one in differences(old, new)}
    assert found == {
        "run.environment.A": ("1", None),
        "run.image": ("a:1", "a:2"),
        "tolerations": ([], [{"key": "k"}]),
    }
    assert [show_value(one) for one in (None, "a b", [{"key": "k"}], 3)] == [
        "not set", "a b", '[{"key": "k"}]', "3",
    ]  # fmt: skip
