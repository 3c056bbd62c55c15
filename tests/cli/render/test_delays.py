"""Whoever waited too long learns whether it continues by itself or somebody must act."""

from durable.cli.render.delays import describe_delay
from durable.cli.render.progress import WaitTarget
from durable.client import Until
from durable.model.ids import RegionId, TenantId, WorkloadName
from durable.model.pending_reasons import PendingCode
from durable.model.workload import WorkloadSpec
from durable.signals.status import RegionProgress, WorkloadStatus
from tests.model.pending import pending

SPEC = WorkloadSpec.model_validate({"replicas": 2, "resources": {"cpu": 1}})


def waiting(code: PendingCode, sentence: str = "That is why") -> RegionProgress:
    return RegionProgress(region=RegionId("north"), wanted=2, pending=pending(code, sentence))


def status(*regions: RegionProgress, name: str = "web") -> WorkloadStatus:
    return WorkloadStatus(
        tenant=TenantId("shop"),
        workload=WorkloadName(name),
        generation=1,
        observed_generation=1,
        spec=SPEC,
        phase="waiting",
        wanted=2,
        bound=1,
        ready=1,
        serving=1,
        completed=0,
        deleting=False,
        conditions=(),
        regions=regions,
        waits_for=tuple(region.waits or "" for region in regions),
    )


def said(*regions: RegionProgress, until: Until = "serving") -> str:
    target = WaitTarget("shop", "web", until)
    return describe_delay([target], {target: status(*regions)}, 3)


def test_what_time_mends_continues_by_itself() -> None:
    for told in (said(), said(waiting(PendingCode.CAPACITY))):
        assert "It continues by itself; see durable explain shop/web." in told


def test_a_hold_is_ended_by_somebody_who_resumes() -> None:
    told = said(waiting(PendingCode.CAPACITY), waiting(PendingCode.HELD, "Held by ann: INC-1"))
    assert "Reason: north: Held by ann: INC-1 (held)" in told
    assert "Resume it with durable send shop/web resume --reason REASON" in told
    assert "by itself" not in told


def test_what_needs_a_change_says_that_waiting_does_not_help() -> None:
    told = said(waiting(PendingCode.NEVER_FITS))
    assert "Waiting will not help: change the workload" in told
    assert "by itself" not in told


def test_no_hold_keeps_a_deletion() -> None:
    assert "It continues by itself" in said(waiting(PendingCode.HELD), until="deleted")


def test_a_long_reason_does_not_cut_off_the_advice() -> None:
    assert said(waiting(PendingCode.HELD, "x" * 400)).endswith("see durable explain shop/web.")


def test_the_one_that_needs_somebody_to_act_comes_first() -> None:
    fine, held = WaitTarget("shop", "fine", "serving"), WaitTarget("shop", "held", "serving")
    last = {fine: status(name="fine"), held: status(waiting(PendingCode.HELD), name="held")}
    assert describe_delay([fine, held], last, 3).startswith(
        "shop/held is not serving after 3 s (1 bound, 1 ready, 1 serving of 2; 1 more is late)."
    )
