"""A region as agents meet it: declared nodes, replicas that must run, and what was observed."""

import asyncio
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import psycopg

from durable.authority.db.connection import Databases
from durable.authority.fleet.nodes import declare_nodes
from durable.authority.reads.claims import ClaimFilter, read_claims
from durable.model.fleet.manifest import NodeSpec
from durable.model.ids import RegionId
from durable.model.placement.claims import RegionalClaim
from durable.model.placement.intents import ReleaseCause
from durable.model.work.workload import WorkloadSpec
from tests.agent.waiting import eventually
from tests.authority.world import API, EAST, RISK, TEST, World, node

MANY_SLOTS = 64


def workload(**overrides: Any) -> WorkloadSpec:
    values: dict[str, Any] = {"replicas": 1, "resources": {"cpu": "100m", "memory": "64Mi"}}
    return WorkloadSpec.model_validate({**values, **overrides})


class LiveRegion:
    """A region at the database's own time; us-east has one tenant with room and slots."""

    def __init__(self, databases: Databases, url: str, name: RegionId = EAST) -> None:
        self.databases = databases
        self.url = url
        self.name = name
        self.world = World(databases, name)
        self._requests: set[int] = set()
        self._connecting = asyncio.Lock()
        self._connection: psycopg.AsyncConnection | None = None

    async def furnish(self) -> None:
        await self.world.with_region()
        await self.world.with_tenant()
        await self.world.with_slots(MANY_SLOTS)

    async def declare(self, *nodes: NodeSpec) -> None:
        await declare_nodes(self.databases, self.name, nodes, actor=TEST)

    async def request(self, spec: WorkloadSpec | None, generation: int = 1) -> None:
        """Writes down what a generation runs, once."""
        if generation in self._requests:
            return
        self._requests.add(generation)
        stored = {} if spec is None else spec.model_dump(mode="json")
        async with await psycopg.AsyncConnection.connect(self.url, autocommit=True) as connection:
            await connection.execute(
                "INSERT INTO regional.requests (region, tenant, workload, generation, slots,"
                " priority, state, enqueued_at, deadline, spec) VALUES (%s, %s, %s, %s, '{}', 100,"
                " 'bound', now(), now() + interval '1 hour', %s)",
                (self.name, RISK, API, generation, json.dumps(stored)),
            )

    async def run(
        self,
        slot: int = 0,
        spec: WorkloadSpec | None = None,
        *,
        on: str = "n1",
        generation: int = 1,
    ) -> int:
        """A slot reserved, bound and started on a registered node; answers its token."""
        await self.request(workload() if spec is None else spec, generation)
        await self.until_registered(on)
        self.world.now = await self.now()
        return await self.world.running(slot, node=on, generation=generation)

    async def evict(self, token: int, slot: int = 0, generation: int = 1) -> None:
        await self.world.granted(self.world.evict(token, slot, generation=generation))

    async def release(self, token: int, slot: int, cause: ReleaseCause, **overrides: Any) -> None:
        self.world.now = await self.now()
        await self.world.granted(self.world.release(token, slot, cause, **overrides))

    async def now(self) -> datetime:
        rows = await self.ask("SELECT clock_timestamp()")
        return rows[0][0].astimezone(UTC)

    async def ask(self, statement: str, *values: Any) -> Sequence[Any]:
        """One connection for all who wait: a new one for each look would be most of the work."""
        async with self._connecting:
            if self._connection is None:
                self._connection = await psycopg.AsyncConnection.connect(self.url, autocommit=True)
        return await (await self._connection.execute(statement.encode(), values)).fetchall()

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()

    # ── what is observed ────────────────────────────────────────────────────────────────────────

    async def session(self, name: str = "n1") -> int:
        """The session of a live lease at the region's epoch, else 0."""
        rows = await self.ask(
            "SELECT l.session FROM regional.node_leases l JOIN regional.regions g USING (region)"
            " WHERE l.node = %s AND l.epoch = g.epoch AND l.expires_at > clock_timestamp()",
            name,
        )
        return rows[0][0] if rows else 0

    async def until_registered(self, name: str = "n1", *, after: int = 0) -> int:
        async def registered() -> bool:
            return await self.session(name) > after

        await eventually(f"{name} is registered", registered)
        return await self.session(name)

    async def until_lapsed(self, name: str = "n1") -> None:
        async def lapsed() -> bool:
            return await self.session(name) == 0

        await eventually(f"the lease of {name} has ended", lapsed)

    async def binding(self, token: int) -> RegionalClaim:
        which = ClaimFilter(tokens=[token])
        [claim] = await read_claims(self.databases, self.name, which, and_ended=True)
        return claim

    async def observed(self, token: int) -> tuple[str | None, str]:
        rows = await self.ask(
            "SELECT state, evidence FROM regional.observations WHERE region = %s AND token = %s",
            self.name,
            token,
        )
        return (rows[0][0], rows[0][1]) if rows else (None, "")

    async def until(self, token: int, *states: str) -> str:
        """Waits until the newest observation is one of these; answers its evidence."""

        async def reached() -> bool:
            return (await self.observed(token))[0] in states

        try:
            await eventually(f"token {token} is {states}", reached)
        except AssertionError as error:
            raise AssertionError(f"{error}; it is {await self.observed(token)}") from None
        return (await self.observed(token))[1]


__all__ = ["LiveRegion", "node", "workload"]
