"""What a placement does when something changed under a claim that it was about to bind or start."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta

import pytest

from durable.authority.commit.regional_commit import commit_intents
from durable.authority.fleet.cordons import cordon_nodes
from durable.authority.reads.claims import read_claims
from durable.authority.sides import Regional
from durable.model.fleet.drain import NodesTarget
from durable.model.ids import ActorId
from durable.model.placement.intents import AnyIntent, Bind, Expire, Granted, Refused, Start
from tests.workflows.plane import EAST, Plane, manifest, small_fleet, until

TEST = ActorId("test")
Outcomes = list[Granted | Refused]
Meddle = Callable[[Regional, AnyIntent], Awaitable[object]]


def before_the_first(
    kind: type[AnyIntent], meddle: Meddle, monkeypatch: pytest.MonkeyPatch
) -> list[AnyIntent]:
    """Does this just before the first such intent is sent; answers the intent, once it was."""
    seen: list[AnyIntent] = []
    real = Regional.commit

    async def commit(regional: Regional, intents: Sequence[AnyIntent]) -> Outcomes:
        first = next((one for one in intents if isinstance(one, kind)), None)
        if first is not None and not seen:
            seen.append(first)
            await meddle(regional, first)
        return await real(regional, intents)

    monkeypatch.setattr(Regional, "commit", commit)
    return seen


async def serving_node(plane: Plane) -> str:
    async def serves() -> str | None:
        found = (await plane.bindings()).get(("api", 0))
        return str(found.node) if found is not None and found.state == "serving" else None

    return str(await until(serves, "it serves"))


@pytest.mark.parametrize("kind", [Bind, Start])
async def test_a_node_cordoned_on_the_way_is_left_for_another(
    plane: Plane, monkeypatch: pytest.MonkeyPatch, kind: type[AnyIntent]
) -> None:
    cordoned: list[str] = []

    async def cordon(regional: Regional, intent: AnyIntent) -> None:
        (claim,) = await read_claims(regional.databases, EAST)
        cordoned.append(str(claim.node))
        await cordon_nodes(
            regional.databases,
            NodesTarget.of_node(EAST, claim.node),
            actor=TEST,
            reason="disk errors",
        )

    await (await (await plane.load(small_fleet("east", nodes=2))).host()).work()
    before_the_first(kind, cordon, monkeypatch)
    await plane.durable.apply(manifest(replicas=1))
    assert await serving_node(plane) not in cordoned
    assert cordoned
    await plane.no_invariant_is_broken()


async def test_a_reservation_that_the_reaper_freed_is_made_again(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def reap(regional: Regional, bind: AnyIntent) -> None:
        expire = Expire.model_validate({**bind.model_dump(), "actor": "controller:reaper"})
        engine = regional.databases.at_region(EAST, "durable_commit")
        later = datetime.now(UTC) + timedelta(hours=1)
        (outcome,) = await commit_intents(engine, EAST, [expire], now=later)
        assert isinstance(outcome, Granted), outcome

    await (await (await plane.load()).host()).work()
    seen = before_the_first(Bind, reap, monkeypatch)
    await plane.durable.apply(manifest(replicas=1))
    await serving_node(plane)
    assert seen
    await plane.no_invariant_is_broken()
