"""Policy revisions: published once, then moved region by region along the table of legal moves."""

import psycopg
import pytest
from sqlalchemy import text

from durable.authority.db.errors import BrokenConstraintError
from durable.authority.fleet.policies import publish_policy, set_policy_state
from durable.authority.fleet.regions import read_region
from durable.model.ids import RegionId
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.states import POLICY_MOVES, PolicyState
from tests.authority.world import EAST, TEST, WEST, World


async def state_of(world: World, revision: int, region: RegionId = EAST) -> str | None:
    query = text("""
        SELECT state FROM regional.policy_states WHERE region = :region AND revision = :revision
    """)
    async with world.databases.at_region(region, "durable_reader").begin() as connection:
        of = {"region": region, "revision": revision}
        return (await connection.execute(query, of)).scalar_one_or_none()


async def move(world: World, revision: int, state: PolicyState, region: RegionId = EAST) -> None:
    await set_policy_state(world.databases, region, revision, state, TEST)


def force(world: World, revision: int, state: PolicyState) -> None:
    """Puts a revision into a state, whatever way leads there."""
    with psycopg.connect(world.databases.urls[0]) as owner:
        owner.execute("SET session_replication_role = replica")
        owner.execute("DELETE FROM regional.policy_states WHERE revision <> %s", [revision])
        owner.execute(
            """INSERT INTO regional.policy_states VALUES (%s, %s, %s, 'test', now())
                   ON CONFLICT (region, revision) DO UPDATE SET state = excluded.state""",
            [EAST, revision, state],
        )


async def test_a_revision_is_published_once(ready_world: World) -> None:
    spec = {"weights": {"spread": 2, "packing": 1}}
    await publish_policy(ready_world.databases, 2, spec, TEST)
    await publish_policy(ready_world.databases, 2, dict(reversed(spec.items())), TEST)
    with pytest.raises(RefusedError, match="never changes; publish the next number") as no:
        await publish_policy(ready_world.databases, 2, {"weights": {}}, TEST)
    assert no.value.refusal.code is RefusalCode.KEY_CONFLICT
    async with ready_world.databases.at_global("durable_reader").begin() as connection:
        query = text("SELECT spec FROM global.policies WHERE revision = 2")
        assert (await connection.execute(query)).scalar_one() == spec
        query = text("SELECT after FROM audit.events WHERE object = 'policy/2'")
        assert (await connection.execute(query)).scalars().all() == [spec]


@pytest.mark.parametrize("statement", ["UPDATE global.policies SET spec = '[]'",
                                       "DELETE FROM global.policies"])  # fmt: skip
async def test_not_even_the_owner_changes_a_published_revision(
    ready_world: World, statement: str
) -> None:
    with (
        psycopg.connect(ready_world.databases.urls[0]) as owner,
        pytest.raises(psycopg.errors.IntegrityConstraintViolation, match="append-only"),
    ):
        owner.execute(statement.encode())


async def test_every_legal_move_is_made_and_every_other_is_refused(ready_world: World) -> None:
    await publish_policy(ready_world.databases, 2, {}, TEST)
    for before in PolicyState:
        for after in PolicyState:
            force(ready_world, 2, before)
            if before is after or POLICY_MOVES.allows(before, after):
                await move(ready_world, 2, after)
                assert await state_of(ready_world, 2) == after
            else:
                with pytest.raises(RefusedError, match=f"cannot become {after}") as no:
                    await move(ready_world, 2, after)
                assert no.value.refusal.code is RefusalCode.ILLEGAL_MOVE
                assert await state_of(ready_world, 2) == before


async def test_a_revision_begins_as_published_in_every_region(ready_world: World) -> None:
    await publish_policy(ready_world.databases, 2, {}, TEST)
    assert await state_of(ready_world, 2) is None
    await move(ready_world, 2, PolicyState.PUBLISHED)
    assert await state_of(ready_world, 2) == "published"
    await publish_policy(ready_world.databases, 3, {}, TEST)
    await move(ready_world, 3, PolicyState.CANARY)
    assert await state_of(ready_world, 3) == "canary"


async def test_a_move_is_audited_once_and_in_its_region_alone(neighbours: World) -> None:
    await publish_policy(neighbours.databases, 2, {}, TEST)
    versions = [await version_of(neighbours, region) for region in (EAST, WEST)]
    await move(neighbours, 2, PolicyState.SHADOW)
    await move(neighbours, 2, PolicyState.SHADOW)
    assert await version_of(neighbours, EAST) == versions[0] + 1
    assert await version_of(neighbours, WEST) == versions[1]
    assert await state_of(neighbours, 2, WEST) is None
    async with neighbours.databases.at_region(EAST, "durable_reader").begin() as connection:
        query = text("""
            SELECT before, after FROM audit.events
             WHERE object = 'policy/2' AND action = 'set policy state'
        """)
        events = (await connection.execute(query)).all()
    assert [tuple(event) for event in events] == [
        ({"state": None}, {"state": "shadow", "order": 0})
    ]


async def version_of(world: World, region: RegionId) -> int:
    return (await read_region(world.databases, region)).version


async def test_what_is_unknown_is_not_moved(ready_world: World) -> None:
    with pytest.raises(RefusedError, match="There is no policy revision 99") as no:
        await move(ready_world, 99, PolicyState.ACTIVE)
    assert no.value.refusal.code is RefusalCode.UNKNOWN_POLICY
    with pytest.raises(RefusedError) as no:
        await move(ready_world, 1, PolicyState.ACTIVE, RegionId("nowhere"))
    assert no.value.refusal.code is RefusalCode.UNKNOWN_REGION
    assert await state_of(ready_world, 99) is None


async def test_a_state_says_whether_its_revision_places_work(ready_world: World) -> None:
    for slot, state in enumerate(PolicyState):
        force(ready_world, 1, PolicyState.ACTIVE)
        held = await ready_world.granted(ready_world.reserve(slot))
        force(ready_world, 1, state)
        unowned = ready_world.reserve(slot + 10)  # what the policy lets pass is refused for that
        (bind,) = await ready_world.send(ready_world.bind(held.token, slot))
        reserves = state in (PolicyState.CANARY, PolicyState.ACTIVE)
        binds = reserves or state is PolicyState.SUPERSEDED
        assert bind.kind == ("granted" if binds else "refused"), state
        code = await ready_world.refused(unowned)
        assert (code is RefusalCode.POLICY_WITHDRAWN) != reserves, state


async def test_activating_a_revision_supersedes_the_one_before_in_the_same_commit(
    ready_world: World,
) -> None:
    await publish_policy(ready_world.databases, 2, {}, TEST)
    before = await version_of(ready_world, EAST)
    await move(ready_world, 2, PolicyState.ACTIVE)
    assert await state_of(ready_world, 1) == "superseded"
    assert await state_of(ready_world, 2) == "active"
    assert await version_of(ready_world, EAST) == before + 1


async def test_what_only_the_schema_refuses_is_a_sentence_too(ready_world: World) -> None:
    with pytest.raises(BrokenConstraintError, match="nothing changed") as no:
        await publish_policy(ready_world.databases, 0, {}, TEST)
    assert "policies_revision" not in str(no.value), "the driver's text stays in the cause"
