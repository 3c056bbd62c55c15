"""An approval that comes too late, or is not its actor's own for this override, changes nothing.

It is answered with the reason and is in the audit; one that counted is answered the same again.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from temporalio.client import WithStartWorkflowOperation

from durable.authority.audit.events import read_events
from durable.authority.overrides.reads import obeyed_overrides
from durable.model.ids import OverrideId
from durable.model.operators.rights import OperatorMessage
from durable.model.operators.signature import sign
from durable.model.overrides.override import Override
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.states import OverrideState
from durable.signals.names import OVERRIDE
from durable.signals.payloads import Look
from durable.signals.starting import override_options
from durable.temporal.signing import Signer, read_key
from tests.conftest import DEPLOYMENT
from tests.workflows.keys import Person
from tests.workflows.override_life import Pair, shorten
from tests.workflows.plane import EAST, Plane, until
from tests.workflows.test_rights import refused

GLASS, OTHER = "override/glass", "override/other"


async def propose(pair: Pair, name: str) -> Override:
    async with pair.ann.connected(pair.plane) as hers:
        made, _ = await hers.overrides.create(
            "break-glass", {"tenant": "risk"}, effect={"gates": ["cordon"]}, reason="r", id=name
        )
    assert made.state is OverrideState.PROPOSED
    return made


async def story(plane: Plane, name: str) -> list[tuple[str, str]]:
    """Who did what to it, or claims to have sent what was refused."""
    events, _ = await read_events(plane.databases, target=f"override/{name}", last=500)
    return [
        (str((one.after or {}).get("claimed_actor", one.actor)), one.action)
        for one in events
        if one.chain == "global"
    ]


async def too_late(pair: Pair, name: str) -> None:
    """What Ada signs just now, and would count for a proposal."""
    async with pair.ada.connected(pair.plane) as hers:
        with pytest.raises(RefusedError) as error:
            await hers.overrides.approve(name, reason="late")
    assert error.value.refusal.code is RefusalCode.OVERRIDE_ENDED


PROPOSED = ("person:ann", "propose override")
REFUSED = ("person:ada", "reject message approve")


async def test_what_has_lapsed_was_rejected_or_revoked_is_not_approved(
    plane: Plane, tmp_path: Path
) -> None:
    await (await plane.load()).work()
    pair = await Pair.make(plane, tmp_path)
    overrides = plane.durable.overrides
    for name in ("lapsed", "rejected", "revoked"):
        await propose(pair, name)

    # By the clock it has, whatever its workflow knows.
    await shorten(plane.databases, OverrideId("lapsed"))

    async def is_due() -> bool:
        return (await overrides.read("lapsed")).expires_at < datetime.now(UTC)

    await until(is_due, "its time is over")
    await too_late(pair, "lapsed")
    await plane.durable.client.get_workflow_handle("override/lapsed").signal("look", Look(why="x"))

    async def has_expired() -> bool:
        return (await overrides.read("lapsed")).state is OverrideState.EXPIRED

    await until(has_expired, "it is recorded that nobody approved it in time")
    async with pair.ada.connected(plane) as hers:
        await hers.overrides.reject("rejected", reason="no")
    async with pair.ann.connected(plane) as hers:
        await hers.overrides.revoke("revoked", reason="never mind")

    before = {name: await overrides.read(name) for name in ("lapsed", "rejected", "revoked")}
    for name in before:
        await too_late(pair, name)
        assert await overrides.read(name) == before[name]
    assert [one.state.value for one in before.values()] == ["expired", "rejected", "revoked"]
    assert await story(plane, "lapsed") == [
        PROPOSED, REFUSED, ("controller:override", "end override"), REFUSED,
    ]  # fmt: skip
    assert await story(plane, "rejected") == [PROPOSED, ("person:ada", "end override"), REFUSED]
    assert await story(plane, "revoked") == [PROPOSED, ("person:ann", "end override"), REFUSED]
    assert await obeyed_overrides(plane.databases, EAST) == []


def key_of(person: Person) -> Ed25519PrivateKey:
    key = read_key(person.keys, person.actor)
    assert key is not None
    return key


async def test_an_approval_counts_only_by_its_actors_key_for_this_override_here_and_now(
    plane: Plane, tmp_path: Path
) -> None:
    await (await plane.load()).work()
    pair = await Pair.make(plane, tmp_path)
    ann, ada = pair.ann, pair.ada
    alice = await Person.make(plane, tmp_path, "person:alice")
    made, other = await propose(pair, "glass"), await propose(pair, "other")
    approval = ada.unsigned("one")

    def at(moment: datetime) -> dict[str, Any]:
        content = {**approval, "signed_at": moment.isoformat()}
        asked = OperatorMessage(workflow_id=GLASS, message="approve", payload=content)
        return {**content, "signature": sign(key_of(ada), asked, DEPLOYMENT)}

    good, now = ada.signer.sign_content(GLASS, "approve", approval), datetime.now(UTC)
    elsewhere = Signer(key_of(ada), "another")
    wrong: list[tuple[str, Mapping[str, Any], str]] = [
        ("long ago", at(now - timedelta(minutes=6)), "signature_old"),
        ("in the future", at(now + timedelta(minutes=6)), "signature_old"),
        ("by whoever proposed it", ann.signer.sign_content(GLASS, "approve", approval),
         "signature_wrong"),
        ("by somebody else", alice.signer.sign_content(GLASS, "approve", approval),
         "signature_wrong"),
        ("for another override", ada.signer.sign_content(OTHER, "approve", approval),
         "signature_wrong"),
        ("for another message", ada.signer.sign_content(GLASS, "reject", approval),
         "signature_wrong"),
        ("for another deployment", elsewhere.sign_content(GLASS, "approve", approval),
         "signature_wrong"),
        ("and changed", {**good, "reason": "another"}, "signature_wrong"),
    ]  # fmt: skip
    for what, payload, code in wrong:
        assert await refused(plane, GLASS, "approve", payload) == code, what
    assert await plane.durable.overrides.read("glass") == made
    assert await plane.durable.overrides.read("other") == other
    assert await obeyed_overrides(plane.databases, EAST) == []
    told: list[tuple[str, str]] = [PROPOSED, *[REFUSED] * len(wrong)]
    assert await story(plane, "glass") == told

    handle: Any = plane.durable.client.get_workflow_handle(GLASS)
    answer: str = await handle.execute_update("approve", good)
    assert answer.startswith("Approved: break-glass on tenant risk is in force until")
    approved = await plane.durable.overrides.read("glass")
    assert (approved.state, approved.approver) == (OverrideState.ACTIVE, "person:ada")
    told.append(("person:ada", "activate override"))

    # Again: the same answer, and nothing changes.
    assert await handle.execute_update("approve", good) == answer
    await handle.signal("approve", good)
    assert await handle.execute_update("approve", good) == answer, "and it has read the signal"
    assert await plane.durable.overrides.read("glass") == approved
    assert await story(plane, "glass") == told
    assert await obeyed_overrides(plane.databases, EAST) == ["glass"]

    # What has ended is not brought back by it either.
    async with ann.connected(plane) as hers:
        await hers.overrides.revoke("glass", reason="over")
    revoked = await plane.durable.overrides.read("glass")
    assert (await again(plane, "glass", good)).startswith(answer)
    assert await plane.durable.overrides.read("glass") == revoked
    assert await obeyed_overrides(plane.databases, EAST) == []
    assert await story(plane, "glass") == [*told, ("person:ann", "end override")]
    await plane.no_invariant_is_broken()


async def again(plane: Plane, name: str, payload: Mapping[str, Any]) -> str:
    """Sends an approval to an override whose workflow has come to its end."""
    client: Any = plane.durable.client
    start: WithStartWorkflowOperation[Any, Any] = WithStartWorkflowOperation(
        OVERRIDE, **override_options(OverrideId(name))
    )
    return await client.execute_update_with_start_workflow(
        "approve", dict(payload), start_workflow_operation=start
    )
