"""Overrides through a real Temporal: started as the UI does, obeyed at once, and ended by time."""

from datetime import timedelta
from typing import Any

import pytest
from temporalio.client import WorkflowFailureError, WorkflowUpdateFailedError
from temporalio.common import RetryPolicy

from durable.activities import override as override_steps
from durable.authority.audit.events import read_events
from durable.authority.db.errors import AuthorityUnreachableError
from durable.authority.overrides.reads import obeyed_overrides, read_effects
from durable.model.ids import RegionId
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.states import OverrideState
from durable.signals.names import GLOBAL_QUEUE, OVERRIDE
from durable.workflows import timeouts
from tests.workflows.plane import Plane, manifest, small_fleet, until

EAST = RegionId("east")
API = {"tenant": "risk", "workload": "api"}


async def serving(plane: Plane, replicas: int = 2, nodes: int = 2, **spec: Any) -> None:
    await plane.load(small_fleet("east", nodes=nodes))
    await (await plane.host()).work()
    await plane.durable.apply(manifest(replicas=replicas, **spec))
    await plane.durable.wait("risk", "api")


async def state_of(plane: Plane, name: str) -> OverrideState:
    return (await plane.durable.overrides.read(name)).state


async def test_a_hold_lasts_across_generations_and_ends_when_it_is_revoked(plane: Plane) -> None:
    await serving(plane)
    made, answer = await plane.durable.overrides.create("hold", API, reason="INC-1", id="o-1")
    assert made.state is OverrideState.ACTIVE
    assert answer.startswith("In force: hold on tenant risk, workload api until")
    assert await obeyed_overrides(plane.databases, EAST) == [made.id]
    await plane.durable.scale("risk", "api", 3)

    async def waits() -> bool:
        found = await plane.placement()
        return found.pending is not None and found.pending.code == "held" and len(found.slots) == 3

    await until(waits, "the third slot waits, held")
    pending = (await plane.placement()).pending
    assert pending is not None
    assert "durable override revoke o-1" in pending.sentence
    assert len(await plane.bindings()) == 2
    revoked = await plane.durable.overrides.revoke("o-1", reason="done")
    assert revoked == "Revoked. It no longer has any effect."
    assert (await plane.durable.wait("risk", "api")).serving == 3
    handle: Any = plane.durable.client.get_workflow_handle("override/o-1")
    status: Any = await handle.result()
    assert status["override"]["state"] == "revoked"
    await plane.no_invariant_is_broken()


async def test_a_revocation_whose_answer_was_lost_reaches_every_region_all_the_same(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    await serving(plane)
    monkeypatch.setattr(timeouts, "ADMIT_RETRY", RetryPolicy(maximum_attempts=1))
    await plane.durable.overrides.create("hold", API, reason="INC-1", id="o-lost")
    change = override_steps.change_override

    async def answer_is_lost(*given: Any, **named: Any) -> Any:
        await change(*given, **named)
        raise AuthorityUnreachableError("the answer was lost")

    monkeypatch.setattr(override_steps, "change_override", answer_is_lost)
    with pytest.raises(RefusedError, match="the answer was lost; send it again"):
        await plane.durable.overrides.revoke("o-lost", reason="done")

    async def is_forgotten() -> bool:
        return not await obeyed_overrides(plane.databases, EAST)

    await until(is_forgotten, "the region knows that it has ended")


async def test_an_avoided_node_is_left_and_used_again_when_its_time_is_over(plane: Plane) -> None:
    await serving(plane, replicas=2, spread={"max_per_node": 1}, nodes=3)
    on = {claim.node for claim in (await plane.bindings()).values()}
    avoided = sorted(on)[0]
    scope = {"region": "east", "node": str(avoided)}
    made, _ = await plane.durable.overrides.create(
        "avoid-node", scope, reason="INC-2", effect={"move": True}, ttl=timedelta(seconds=20)
    )

    async def has_left() -> bool:
        now = await plane.bindings()
        serving = [claim for claim in now.values() if claim.state == "serving"]
        return len(serving) == 2 and avoided not in {claim.node for claim in now.values()}

    await until(has_left, "what ran there serves elsewhere")
    effect = (await read_effects(plane.databases, EAST))[made.id]
    assert (effect.marked, effect.left_to_move) == (1, 0)

    async def has_ended() -> bool:
        return await state_of(plane, made.id) is OverrideState.EXPIRED

    await until(has_ended, "it ends by itself")

    async def is_forgotten() -> bool:
        return not await obeyed_overrides(plane.databases, EAST)

    await until(is_forgotten, "the region knows")
    events, _ = await read_events(plane.databases, last=500)
    told = [one.action for one in events if one.object == f"override/{made.id}"]
    assert told == [
        "propose override", "activate override", "put override in force", "end override",
        "end override",
    ]  # fmt: skip
    await plane.no_invariant_is_broken()


async def start(plane: Plane, name: str, *input: Any) -> Any:
    return await plane.durable.client.start_workflow(
        OVERRIDE, args=list(input), id=name, task_queue=GLOBAL_QUEUE
    )


async def test_it_is_started_from_the_ui_with_its_proposal_as_input(plane: Plane) -> None:
    await serving(plane)
    proposal = {
        "actor": "test", "reason": "INC-3", "request_id": "INC-3-1", "kind": "hold",
        "scope": API, "ttl": "10m",
    }  # fmt: skip
    handle = await start(plane, "override/o-ui", proposal)

    async def is_active() -> bool:
        return (await handle.query("status"))["override"] is not None

    await until(is_active, "it is in force")
    assert await state_of(plane, "o-ui") is OverrideState.ACTIVE
    assert await handle.execute_update(
        "revoke", {"actor": "test", "reason": "done", "request_id": "2"}
    ) == "Revoked. It no longer has any effect."  # fmt: skip
    await handle.result()


WHO = {"actor": "test", "reason": "INC-4", "request_id": "1"}
FORGED = {"override": {
    "id": "bad-2", "kind": "hold", "scope": API, "effect": {}, "actor": "ann", "reason": "mine",
    "ttl": "1h", "state": "active", "proposed_at": "2020-01-01T00:00:00Z",
    "activated_at": "2020-01-01T00:00:00Z", "expires_at": "2090-01-01T00:00:00Z",
    "latest_expiry": "2090-01-01T00:00:00Z",
}}  # fmt: skip
BAD: list[tuple[str, Any, str]] = [
    ("nothing at all", None, "It has no payload"),
    ("no object", "hold", "allowed: "),
    ("a memory that no run left", {"memory": FORGED}, "memory"),
    ("a broken memory", {"memory": 7}, "memory"),
    ("no reason", {"actor": "test", "request_id": "1", "kind": "hold", "scope": API}, "reason"),
    ("an unknown kind", {**WHO, "kind": "unicorn"}, "allowed: avoid-zone, avoid-node, hold"),
    ("no scope", {**WHO, "kind": "hold"}, "it lacks tenant and workload; name tenant, workload"),
    ("a ttl of 0", {**WHO, "kind": "hold", "scope": API, "ttl": "0s"}, "ttl: got '0s'"),
    ("a negative ttl", {**WHO, "kind": "hold", "scope": API, "ttl": "-5m"}, "ttl: got '-5m'"),
    ("a ttl that is a number", {**WHO, "kind": "hold", "scope": API, "ttl": 5}, "ttl: "),
    ("a ttl of 2^63", {**WHO, "kind": "hold", "scope": API, "ttl": f"{2**63}s"}, "ttl: got"),
    ("a ttl above the maximum", {**WHO, "kind": "hold", "scope": API, "ttl": "8d"}, "7d for hold"),
    ("an unknown region", {**WHO, "kind": "avoid-zone", "scope": {"region": "mars", "zone": "a"}},
     "There is no region mars; the regions are east"),
    ("an unknown zone", {**WHO, "kind": "avoid-zone", "scope": {"region": "east", "zone": "x"}},
     "east has no nodes in zone x"),
    ("an unknown workload", {**WHO, "kind": "hold", "scope": {**API, "workload": "x"}},
     "There is no workload risk/x"),
    ("an unknown tenant", {**WHO, "kind": "priority-boost", "scope": {"tenant": "x"},
                           "effect": {"by": 1}}, "There is no tenant x"),
    ("an unknown person", {**WHO, "actor": "mallory", "kind": "hold", "scope": API},
     "mallory is not an operator"),
    ("a gate that is none", {**WHO, "kind": "break-glass", "scope": {"tenant": "risk"},
                             "effect": {"gates": ["capacity"]}}, "effect.gates"),
    ("no signature", {**WHO, "kind": "break-glass", "scope": {"tenant": "risk"},
                      "effect": {"gates": ["cordon"]}}, "demands a signature"),
]  # fmt: skip


async def test_wrong_input_is_answered_with_what_is_allowed_and_changes_nothing(
    plane: Plane,
) -> None:
    await serving(plane)
    for number, (what, payload, says) in enumerate(BAD):
        handle = await start(
            plane, f"override/bad-{number}", *([] if payload is None else [payload])
        )
        if payload is None:
            with pytest.raises(WorkflowUpdateFailedError) as refused:
                await handle.execute_update("propose")
            sentence = str(refused.value.cause)
            await handle.result()
        else:
            with pytest.raises(WorkflowFailureError) as failed:
                await handle.result()
            sentence = str(failed.value.cause)
        assert says in sentence, what
    strange = await start(plane, "override/Not A Name", {**WHO, "kind": "hold", "scope": API})
    with pytest.raises(WorkflowFailureError) as failed:
        await strange.result()
    assert "is not a valid override name" in str(failed.value.cause)
    assert await obeyed_overrides(plane.databases, EAST) == []
    events, _ = await read_events(plane.databases, last=500)
    rejected = [one for one in events if one.action == "reject message propose"]
    assert len(rejected) == len(BAD) + 1
    assert not [one for one in events if one.action == "propose override"]


async def test_messages_to_an_override_that_does_not_exist_are_refused(plane: Plane) -> None:
    await serving(plane)
    with pytest.raises(RefusedError) as refused:
        await plane.durable.overrides.revoke("nothing", reason="x")
    assert refused.value.refusal.code is RefusalCode.UNKNOWN_OVERRIDE
    handle = await start(plane, "override/nothing")
    await handle.signal("approve", {"actor": "test"})
    result: Any = await handle.result()
    assert [one["name"] for one in result["rejected"]] == ["approve"]
