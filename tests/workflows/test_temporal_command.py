"""Overrides and policies by Temporal's own command: valid, wrong and empty, both ways.

Wrong and empty messages are answered (update) or shown (signal), audited, and change nothing.
"""

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from durable.authority.audit.events import read_events
from durable.authority.overrides.reads import obeyed_overrides
from durable.model.policy.rollout import PolicyPhase
from durable.model.states import OverrideState, PolicyState
from durable.signals.names import GLOBAL_QUEUE, OVERRIDE, policy_id
from tests.workflows.keys import Person
from tests.workflows.plane import EAST, Plane, answer, until
from tests.workflows.temporal_command import BOTH, Way, send, start
from tests.workflows.test_override import serving, state_of
from tests.workflows.test_policy import WATCHED, came_to, in_force, publish, ready

# What is wrong whatever it is sent as; the first has no payload at all.
EMPTY: list[tuple[Sequence[Any], str]] = [
    ((), "It has no payload; send one JSON object."),
    (({},), "actor"),
]
STRANGE: list[tuple[Sequence[Any], str]] = [
    (("yes",), "allowed: "),
    (({}, {}), "several arguments"),
]


class Dialog:
    """One workflow's messages, sent one way, and what it shows of those that it refused."""

    def __init__(self, plane: Plane, way: Way, workflow: str) -> None:
        self._plane, self._workflow = plane, workflow
        self._way: Way = way
        self.refused = 0

    async def accept(self, name: str, payload: Any) -> str:
        code, output = await send(self._plane, self._way, self._workflow, name, payload)
        assert code == 0, output
        return output

    async def refuse(self, name: str, payloads: Sequence[Any], words: str) -> None:
        """The message is answered or at least shown with these words."""
        code, output = await send(self._plane, self._way, self._workflow, name, *payloads)
        self.refused += 1
        if self._way == "update":
            assert code != 0, output
            assert words in output, payloads
        else:
            assert code == 0, output
        await until(self._is_shown, f"{name} is shown as rejected")
        (*_, last) = (await self._status())["rejected"]
        assert (last["name"], last["accepted"]) == (name, False)
        assert words in last["answer"], payloads

    async def refuse_all(self, name: str, cases: Sequence[tuple[Sequence[Any], str]]) -> None:
        for payloads, words in cases:
            await self.refuse(name, payloads, words)

    async def all_is_audited(self) -> None:
        async def audited() -> bool:
            events, _ = await read_events(self._plane.databases, last=500)
            rejected = [one for one in events if one.action.startswith("reject message ")]
            return len([one for one in rejected if one.object == self._workflow]) == self.refused

        await until(audited, "what was refused is in the audit")

    async def _is_shown(self) -> bool:
        return (await self._status())["rejected_count"] == self.refused

    async def _status(self) -> Any:
        handle = self._plane.durable.client.get_workflow_handle(self._workflow)
        return await answer(lambda: handle.query("status"))


async def becomes(read: Callable[[], Awaitable[object]], value: object) -> None:
    async def is_so() -> bool:
        return await read() == value

    await until(is_so, f"it becomes {value}")


@pytest.mark.parametrize("way", BOTH)
async def test_an_override_is_started_approved_extended_and_revoked(
    plane: Plane, tmp_path: Path, way: Way
) -> None:
    await serving(plane)
    ann, ada = [await Person.make(plane, tmp_path, f"person:{one}") for one in ("ann", "ada")]
    workflow = "override/o-1"
    dialog = Dialog(plane, way, workflow)
    proposal = ann.signed(
        workflow, "propose", "p", kind="emergency-quota", ttl="10m",
        scope={"region": "east", "tenant": "risk"}, effect={"amount": {"cpu": 1}},
    )  # fmt: skip
    await start(plane, OVERRIDE, workflow, GLOBAL_QUEUE, proposal)

    async def proposed() -> Any:
        return (await plane.durable.client.get_workflow_handle(workflow).query("status"))[
            "override"
        ]

    await until(proposed, "it is proposed")
    before = await plane.durable.overrides.read("o-1")
    assert before.state is OverrideState.PROPOSED

    await dialog.refuse_all("approve", [*EMPTY, *STRANGE])
    for payload, words in (
        (ada.unsigned("a"), "demands a signature for approve"),
        (ann.signed(workflow, "approve", "a"), "another person"),
        (ada.signed("override/o-2", "approve", "a"), "signature"),
        ({**ada.signed(workflow, "approve", "a"), "reason": "another"}, "signature"),
    ):
        await dialog.refuse("approve", [payload], words)
    assert await plane.durable.overrides.read("o-1") == before
    assert await obeyed_overrides(plane.databases, EAST) == []
    await dialog.accept("approve", ada.signed(workflow, "approve", "a"))
    await becomes(lambda: obeyed_overrides(plane.databases, EAST), ["o-1"])

    active = await plane.durable.overrides.read("o-1")
    await dialog.refuse_all("extend", EMPTY)
    for by, words in ((None, "by"), (5, "by"), ("0s", "by: got '0s'"), ("2d", "at most 1d")):
        await dialog.refuse("extend", [ann.unsigned("e", by=by)], words)
    await dialog.refuse("extend", [ann.unsigned("e", by="5m")], "so for what needs approval")
    await dialog.refuse_all("revoke", EMPTY)
    stranger = {**ann.unsigned("r"), "actor": "mallory"}
    await dialog.refuse("revoke", [stranger], "mallory is not an operator")
    assert await plane.durable.overrides.read("o-1") == active
    await dialog.accept("extend", ann.signed(workflow, "extend", "e", by="5m"))

    async def expires_at() -> object:
        return (await plane.durable.overrides.read("o-1")).expires_at

    await becomes(expires_at, active.expires_at + timedelta(minutes=5))
    await dialog.accept("revoke", ann.unsigned("r"))
    await becomes(lambda: state_of(plane, "o-1"), OverrideState.REVOKED)
    await becomes(lambda: obeyed_overrides(plane.databases, EAST), [])
    await dialog.all_is_audited()
    await plane.no_invariant_is_broken()


@pytest.mark.parametrize("way", BOTH)
async def test_a_policy_is_promoted_paused_and_rolled_back(plane: Plane, way: Way) -> None:
    await ready(plane)
    await publish(plane, WATCHED)
    await came_to(plane, PolicyPhase.SHADOW)
    dialog = Dialog(plane, way, policy_id(2))

    def who(request: str, **fields: Any) -> dict[str, Any]:
        return {"actor": "test", "reason": "INC-42", "request_id": request, **fields}

    async def where() -> tuple[PolicyPhase, bool, object]:
        progress = (await plane.durable.policies.status(2)).progress
        assert progress is not None
        return progress.rollout.phase, progress.rollout.is_paused, await in_force(plane)

    async def refuse(name: str, *cases: tuple[dict[str, Any], str]) -> None:
        before = await where()
        await dialog.refuse_all(name, EMPTY)
        stranger = {**who("s"), "actor": "mallory"}
        for payload, words in ((stranger, "mallory is not an operator"), *cases):
            await dialog.refuse(name, [payload], words)
        assert await where() == before

    await refuse(
        "promote",
        (who("p", canary="mars"), "There is no region mars"),
        (who("p", after=-1), "after"),
    )
    await refuse("pause", (who("w"), "Revision 2"))
    await dialog.accept("promote", who("p"))
    await came_to(plane, PolicyPhase.CANARY)
    await dialog.accept("pause", who("w"))

    async def is_paused() -> bool:
        return (await where())[1]

    await until(is_paused, "it is paused")
    await refuse(
        "rollback",
        (who("b", to="first"), "to"),
        (who("b", to=9), "There is no policy revision 9"),
        (who("p", to=1), "Request id p was used"),
    )
    await dialog.accept("rollback", who("b", to=1))
    await came_to(plane, PolicyPhase.ROLLED_BACK)
    assert await in_force(plane) == {1: PolicyState.ACTIVE}
    await dialog.all_is_audited()
