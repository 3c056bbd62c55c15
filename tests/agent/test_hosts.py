"""A node has one host at a time, in a zone that its fleet declares."""

from pathlib import Path

from durable.agent.leases import Timing
from durable.authority.db.connection import Databases
from durable.authority.fleet.regions import add_region
from durable.model.ids import ZoneId
from tests.agent.commands import directory_of, lives, number_in, shell
from tests.agent.conftest import Agents
from tests.agent.region import LiveRegion
from tests.agent.waiting import eventually
from tests.authority.world import EAST, TEST
from tests.conftest import Copies


def is_logged(agents: Agents, words: str) -> bool:
    errors = [str(fields["reason"]) for event, fields in agents.events if event == "error"]
    return any(words in sentence for sentence in errors)


async def test_an_agent_does_not_take_over_a_node_that_another_living_agent_hosts(
    region: LiveRegion, agents: Agents, tmp_path: Path
) -> None:
    agents.process(region, tmp_path / "first", timing=Timing(lease_ttl_seconds=2))
    session = await region.until_registered()
    other = Agents()
    other.process(region, tmp_path / "second")
    try:
        hosted = "Node n1 of us-east is hosted by the agent on"
        await eventually("it is refused", lambda: is_logged(other, hosted))
        assert await region.session() == session

        await agents.end("n1")
        # Any change of the region has the other one try again, and after a while it does so anyway.
        await region.until_lapsed()
        await region.ask("UPDATE regional.regions SET version = version + 1 RETURNING 1")
        await region.until_registered(after=session)
    finally:
        await other.end_all()


async def test_an_agent_does_not_register_in_a_zone_that_nobody_declared(
    region: LiveRegion, agents: Agents, tmp_path: Path
) -> None:
    await add_region(region.databases, EAST, TEST, [ZoneId("b"), ZoneId("c")])
    agents.process(region, tmp_path)
    refusal = "us-east has no zone a, which node n1 names; its zones are b, c."
    await eventually("it is refused", lambda: is_logged(agents, refusal))
    assert await region.session() == 0

    await add_region(region.databases, EAST, TEST, [ZoneId("a")])
    await region.ask("UPDATE regional.regions SET version = version + 1 RETURNING 1")
    await region.until_registered()


async def test_a_token_that_comes_again_after_a_restore_is_another_process(
    region: LiveRegion, agents: Agents, tmp_path: Path, copies: Copies, region_template: str
) -> None:
    """Tokens begin again in a database that was restored to an earlier time."""
    first = shell("echo $$ > pid; echo first >> ../../starts; exec sleep 1000")
    second = shell("echo $$ > pid; echo second >> ../../starts; exec sleep 1000")
    agents.process(region, tmp_path)
    tokens = [await region.run(slot, first) for slot in (0, 1)]
    for token in tokens:
        await region.until(token, "serving")
    running = [await number_in(directory_of(tmp_path, token) / "work" / "pid") for token in tokens]
    # One has ended and was forgotten, the other runs on while the database is restored.
    await region.evict(tokens[0])
    await region.until(tokens[0], "stopped")
    await agents.end("n1")

    with copies.lend(region_template) as url:
        async with Databases(url) as databases:
            restored = LiveRegion(databases, url)
            agents.process(restored, tmp_path)
            again = [await restored.run(slot, second) for slot in (2, 3)]
            assert again == tokens
            for token in again:
                await restored.until(token, "serving")
            assert [pid for pid in running if lives(pid)] == []
            starts = (tmp_path / "agents" / "n1" / "starts").read_text().split()
            assert sorted(starts) == ["first", "first", "second", "second"]
            await agents.end("n1")
            await restored.close()
