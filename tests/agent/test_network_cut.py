"""A network that is cut for real: packets vanish, and connections neither end nor answer.

One side is in a network namespace of its own, with an agent and replicas that are real processes;
the other side is this machine, where a real replacement runs.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from durable.authority.db.connection import Databases
from durable.authority.db.errors import AuthorityUnreachableError
from durable.authority.recovery.fence import fence
from durable.authority.recovery.fenced_claims import release_fenced
from durable.authority.recovery.region_leases import renew
from durable.authority.slots.ownership import SlotRegistry
from durable.model.refusal import RefusalCode, RefusedError
from tests.agent.conftest import Agents
from tests.agent.cut_proxy import CutProxy
from tests.agent.network_namespace import NamespaceRefusedError, NetworkNamespace
from tests.agent.partition import LEASE_SECONDS, AgentCommands, partitioned
from tests.agent.region import LiveRegion
from tests.agent.waiting import beside, eventually
from tests.authority.world import API, EAST, FIRST_DIVISION, RISK, TEST, WEST


@pytest.fixture
def namespace() -> Iterator[NetworkNamespace]:
    namespace = NetworkNamespace()
    try:
        namespace.make()
    except NamespaceRefusedError as error:
        pytest.skip(str(error))
    try:
        yield namespace
    finally:
        namespace.remove()


@pytest.fixture
async def commands(agents: Agents, tmp_path: Path) -> AsyncIterator[AgentCommands]:
    """Beside `agents`, which also ends what replicas leave behind."""
    del agents
    commands = AgentCommands(tmp_path)
    yield commands
    await commands.end_all()


async def test_never_two_of_a_slot_when_its_agent_hears_nothing_from_the_authority(
    region: LiveRegion, namespace: NetworkNamespace, commands: AgentCommands, tmp_path: Path
) -> None:
    databases = region.databases
    west = LiveRegion(databases, region.url, WEST)
    registry = SlotRegistry(databases, RISK, API, FIRST_DIVISION)

    async def moved() -> bool:
        try:
            await registry.transfer([0, 1], EAST, WEST, transfer="t1", actor=TEST)
        except RefusedError as error:
            if error.refusal.code is not RefusalCode.SLOT_TAKEN:
                raise
            await release_fenced(databases, EAST, epoch=2, most=100)
            return False
        return True

    async with (
        CutProxy(region.url, namespace.listen_outside()) as proxy,
        partitioned(region, west, namespace, tmp_path) as partition,
    ):
        await partition.begin(commands, proxy.url)
        session = await region.session()
        namespace.silence_outside()
        done = await fence(databases, EAST, expected_epoch=1, actor=TEST, reason="it is cut off")
        assert done.is_in_region
        await eventually("its slots have moved", moved)
        await partition.replace()
        assert proxy.connections > 0, "nobody told us that they have ended"

        namespace.mend()
        # A session at the new epoch exists only once what moved away has ended.
        await region.until_registered(after=session)
        await partition.reopen(databases)
        partition.check()


async def test_never_two_of_a_slot_when_the_global_side_hears_nothing_from_its_region(
    database_url: str,
    east_url: str,
    namespace: NetworkNamespace,
    commands: AgentCommands,
    tmp_path: Path,
) -> None:
    async with (
        CutProxy(east_url, namespace.listen_inside("127.0.0.1")) as at_home,
        CutProxy(east_url, namespace.listen_inside(namespace.address_inside)) as abroad,
        Databases(database_url, {EAST: east_url}) as inside,
        Databases(database_url, {EAST: abroad.url}) as outside,
        partitioned(
            east := LiveRegion(inside, east_url),
            LiveRegion(outside, database_url, WEST),
            namespace,
            tmp_path,
        ) as partition,
    ):
        registry = SlotRegistry(outside, RISK, API, FIRST_DIVISION)

        async def moved() -> bool:
            try:
                await registry.transfer([0, 1], EAST, WEST, transfer="t1", actor=TEST)
            except AuthorityUnreachableError:
                return False
            return True

        async def released() -> bool:
            return (await release_fenced(outside, EAST, epoch=2, most=100)).waiting == 0

        await east.furnish()
        async with renewed(outside):
            await partition.begin(commands, at_home.url)
        namespace.silence_inside()
        done = await fence(outside, EAST, expected_epoch=1, actor=TEST, reason="it is cut off")
        assert not done.is_in_region
        await eventually("its slots have moved", moved)
        await partition.replace()
        assert abroad.connections > 0, "nobody told it that they have ended"
        await east.until_registered()  # its nodes go on in the region

        namespace.mend()
        await eventually("its database answers", lambda: not outside.is_away(EAST))
        assert (await renew(outside, EAST, "w", lease_seconds=60)).is_fenced
        await east.until_registered()
        await eventually("what moved has ended there", released)
        await partition.reopen(outside)
        partition.check()


@asynccontextmanager
async def renewed(databases: Databases) -> AsyncGenerator[None]:
    """The lease of us-east, across the link."""

    async def keep_renewing() -> None:
        while True:
            await asyncio.sleep(LEASE_SECONDS / 8)
            await renew(databases, EAST, "w", lease_seconds=LEASE_SECONDS)

    await renew(databases, EAST, "w", lease_seconds=LEASE_SECONDS)
    async with beside(keep_renewing()):
        yield
