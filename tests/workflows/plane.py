"""A whole control plane for a test: a database, a namespace, a fleet, workers and agents."""

import asyncio
import contextlib
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Mapping,
    Sequence,
)
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import psycopg
from sqlalchemy import text
from temporalio.client import WorkflowUpdateRPCTimeoutOrCancelledError
from temporalio.service import RPCError, RPCStatusCode

from durable.agent.agent import Agent
from durable.agent.nodes import DeclaredNodes
from durable.agent.simulated.driver import Delays, SimulatedDriver
from durable.agent.simulated.faults import Faults
from durable.authority.db.connection import Databases
from durable.authority.db.engine import AsyncConnection
from durable.authority.db.transaction import regional_transaction
from durable.authority.fleet.manifest import apply_fleet
from durable.authority.reads.census import take_census
from durable.authority.reads.claims import ClaimFilter, read_claims
from durable.authority.reads.invariants import violations_everywhere
from durable.client import Durable
from durable.ending import end_all
from durable.model.fleet.manifest import Fleet
from durable.model.ids import ActorId, RegionId, WorkloadName
from durable.model.placement.claims import RegionalClaim
from durable.settings import Settings
from durable.signals.names import placement_id
from durable.signals.status import PlacementStatus
from durable.temporal.connection import connect
from durable.temporal.worker import global_worker, regional_worker

T = TypeVar("T")

EAST, WEST = RegionId("east"), RegionId("west")
DEADLINE_SECONDS = 300.0
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.02, 0.15
INSTANTLY = Delays(start_seconds=0, ready_seconds=0, stop_seconds=0, job_seconds=0, jitter=0)


_AWAY = text("""
    SELECT count(*)
      FROM regional.nodes AS n LEFT JOIN regional.node_leases AS l USING (region, node)
     WHERE n.region = :region AND n.state <> 'removed'
       AND NOT (n.state = 'ready' AND coalesce(l.expires_at > clock_timestamp(), false))
""")
# What a server or a worker answers that is too busy to answer.
_BUSY = (
    RPCStatusCode.ABORTED, RPCStatusCode.CANCELLED, RPCStatusCode.DEADLINE_EXCEEDED,
    RPCStatusCode.RESOURCE_EXHAUSTED, RPCStatusCode.UNAVAILABLE,
)  # fmt: skip


def small_fleet(*regions: str, nodes: int = 3, cpu: int = 4, gpus: int = 0, **pool: Any) -> Fleet:
    """One pool per region and one tenant `risk` that may use all of it."""
    names = regions or ("east",)
    capacity = {"cpu": cpu, "memory": "16Gi", "gpu": gpus}
    whole = {"cpu": nodes * cpu, "memory": f"{nodes * 16}Gi", "gpu": nodes * gpus}
    everything = {name: value * len(names) for name, value in whole.items() if name != "memory"}
    return Fleet.model_validate(
        {
            "regions": [
                {
                    "id": name,
                    "zones": [f"{name}-a"],
                    "pools": [
                        {
                            "name": "general",
                            "zone": f"{name}-a",
                            "count": nodes,
                            "capacity": capacity,
                            **pool,
                        }
                    ],
                }
                for name in names
            ],
            "tenants": [
                {
                    "id": "risk",
                    "hard": {**everything, "memory": f"{nodes * 16 * len(names)}Gi"},
                    "grants": dict.fromkeys(names, whole),
                }
            ],
        }
    )


def manifest(name: str = "api", *, replicas: int = 2, **spec: Any) -> dict[str, Any]:
    """A workload of `risk`; a case shows only what matters to it."""
    resources = spec.pop("resources", {"cpu": "500m", "memory": "256Mi"})
    wanted = {"replicas": replicas, "resources": resources, **spec}
    return {"tenant": "risk", "name": name, "spec": wanted}


async def until(
    condition: Callable[[], Awaitable[T]], what: str, *, seconds: float = DEADLINE_SECONDS
) -> T:
    """The first answer that is true; the deadline is only there so that a failure ends."""
    last: T | None = None
    # Asking is work, too: whoever waits for long asks less often.
    pause = FIRST_PAUSE_SECONDS
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while True:
                with _asked_again_when_busy():
                    last = await condition()
                if last:
                    return last
                await asyncio.sleep(pause)
                pause = min(LONGEST_PAUSE_SECONDS, pause * 1.2)
    raise AssertionError(f"not within {seconds} s: {what}; last seen: {last!r}")


async def answer(ask: Callable[[], Awaitable[T]]) -> T:
    """What a raw call to Temporal answers or raises, once anything is there to answer it."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while True:
            with _asked_again_when_busy():
                return await ask()
            await asyncio.sleep(LONGEST_PAUSE_SECONDS)


@contextlib.contextmanager
def _asked_again_when_busy() -> Generator[None]:
    try:
        yield
    except WorkflowUpdateRPCTimeoutOrCancelledError as error:
        if isinstance(error.__cause__, asyncio.CancelledError):
            raise error.__cause__ from None
    except RPCError as error:
        if error.status not in _BUSY:
            raise


@regional_transaction("durable_reader", "read the nodes of {region}")
async def _count_away(connection: AsyncConnection, region: RegionId) -> int:
    return (await connection.execute(_AWAY, {"region": region})).scalar_one()


@dataclass
class Plane:
    """The parts of a control plane, started when a test asks for them and stopped with it."""

    settings: Settings
    databases: Databases
    durable: Durable
    faults: Path
    stack: AsyncExitStack = field(default_factory=AsyncExitStack)
    # Where an agent of this process runs.
    _hosted: list[RegionId] = field(default_factory=list[RegionId])

    @classmethod
    async def make(cls, settings: Settings, faults: Path) -> "Plane":
        databases = Databases(settings.require_database_url(), settings.regional_database_urls)
        durable = await Durable.connect(settings, actor="test")
        return cls(settings, databases, durable, faults)

    async def close(self) -> None:
        await self.stack.aclose()
        await self.durable.databases.close()
        await self.databases.close()

    async def load(self, fleet: Fleet | None = None) -> "Plane":
        await apply_fleet(
            self.databases,
            fleet or small_fleet(),
            actor=ActorId("test"),
            request="load",
            report=lambda _: None,
        )
        return self

    async def work(self, *regions: RegionId) -> "Plane":
        """The global worker and one for each region, in this process."""
        client = await connect(self.settings, self.settings.require_temporal_address())
        await self.stack.enter_async_context(global_worker(client, self.databases))
        for region in regions or (EAST,):
            await self.stack.enter_async_context(regional_worker(client, self.databases, region))
        await self.until_live()
        return self

    async def until_live(self) -> None:
        """While workers begin, agents in the same process may miss their renewals.

        Nodes then count as unknown, and take no work until their controller has looked again.
        """

        async def are_ready() -> bool:
            away = [await _count_away(self.databases, region) for region in self._hosted]
            return not any(away)

        await until(are_ready, "the nodes are ready")

    async def host(self, *regions: RegionId, delays: Delays = INSTANTLY) -> "Plane":
        """A simulated agent for each region, in this process, once its nodes take work."""
        for region in regions or (EAST,):
            await self.stack.enter_async_context(self.agent(region, delays))
        await until(lambda: self._nodes_are_live(regions or (EAST,)), "the nodes are registered")
        return self

    @contextlib.asynccontextmanager
    async def short_lived(self, *regions: RegionId) -> AsyncGenerator[AsyncExitStack]:
        """Agents whose nodes take work, and count as gone when the context, or they, end."""
        async with AsyncExitStack() as agents:
            for region in regions:
                agents.push_async_callback(self.lapse, region)
                await agents.enter_async_context(self.agent(region))
            await until(lambda: self._nodes_are_live(regions), "the nodes are registered")
            yield agents

    async def lapse(self, region: RegionId = EAST) -> None:
        """The leases of the nodes end now, as they would in time once their agent has."""
        url = self.settings.regional_database_urls.get(region) or self.settings.database_url
        assert url is not None
        async with await psycopg.AsyncConnection.connect(url) as connection:
            await connection.execute(
                "UPDATE regional.node_leases SET expires_at = clock_timestamp()"
                " WHERE region = %s AND expires_at > clock_timestamp()",
                [region],
            )

    async def _nodes_are_live(self, regions: Sequence[RegionId]) -> bool:
        hosted = [
            pool
            for one in (await take_census(self.databases)).regions
            for pool in one.pools
            if one.region.region in regions
        ]
        return all(pool.live == pool.nodes for pool in hosted)

    @contextlib.asynccontextmanager
    async def agent(
        self, region: RegionId = EAST, delays: Delays = INSTANTLY
    ) -> AsyncGenerator[None]:
        """A simulated agent that ends with the context."""
        agent = Agent(
            self.databases,
            region,
            DeclaredNodes(self.databases, region),
            SimulatedDriver(delays, faults=Faults(self.faults if self.faults.exists() else None)),
            name=ActorId(f"agent:{region}"),
            log=lambda *_, **__: None,
            logs_each=False,
        )
        task = asyncio.create_task(agent.run())
        self._hosted.append(region)
        try:
            yield
        finally:
            self._hosted.remove(region)
            await end_all([task])

    def background(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Runs beside the test, and ends with it."""
        task = asyncio.create_task(work)
        self.stack.push_async_callback(end_all, [task])
        return task

    async def placement(
        self, name: str = "api", region: RegionId = EAST, generation: int = 1
    ) -> PlacementStatus:
        handle = self.handle(name, region, generation)
        found = await answer(lambda: handle.query("status"))
        return PlacementStatus.model_validate(found)

    def handle(self, name: str = "api", region: RegionId = EAST, generation: int = 1) -> Any:
        return self.durable.client.get_workflow_handle(
            placement_id("risk", name, generation, region)  # pyright: ignore[reportArgumentType]
        )

    async def bindings(self, *regions: RegionId) -> Mapping[tuple[str, int], RegionalClaim]:
        """The active bindings by workload and slot; two of one slot would be one too many.

        Equal if nothing has changed: without the moment of the read and the nodes' leases.
        """
        found = [
            binding._replace(read_at=binding.reserved_at, lease_expires_at=None)
            for region in regions or (EAST,)
            for binding in await read_claims(self.databases, region, ClaimFilter(is_bound=True))
        ]
        by_slot = {(str(binding.workload), binding.slot): binding for binding in found}
        assert len(by_slot) == len(found), "a slot has two active bindings"
        return by_slot

    async def started(self, name: str = "api", region: RegionId = EAST) -> list[int]:
        """The slots of every binding of a workload that there ever was."""
        which = ClaimFilter(workload=WorkloadName(name), is_bound=True)
        found = await read_claims(self.databases, region, which, and_ended=True)
        return [claim.slot for claim in sorted(found, key=lambda claim: claim.token)]

    def adopt_databases(self, other: "Plane") -> None:
        """Uses the authority of another plane, beside Temporal's own namespace."""
        self.settings = self.settings.model_copy(
            update={"database_url": other.settings.database_url}
        )
        self.databases = other.databases
        self.durable.databases = other.databases

    async def no_invariant_is_broken(self) -> None:
        assert await violations_everywhere(self.databases) == []
