"""Reservations per second by batch size, against this machine's own rate of single-row commits.

5,000 nodes, 50 tenants, durability on. The bar: a batch of 128 reserves at least 15 times as fast
as a batch of one, and the invariants are clean at the end.
"""

import asyncio
import sys
import tempfile
import time
from pathlib import Path

import psycopg

from bench._report import progress, table, verdict
from durable.authority.commit.regional_commit import commit_intents
from durable.authority.db.connection import Databases
from durable.authority.fleet.node_sessions import register_nodes
from durable.authority.fleet.policies import publish_policy, set_policy_state
from durable.authority.fleet.regions import add_region
from durable.authority.migrations import upgrade_all
from durable.authority.quota.quotas import set_quota
from durable.authority.quota.transfers import GrantTransfer, transfer_grant
from durable.authority.reads.invariants import violations
from durable.authority.slots.assignment import Division
from durable.authority.slots.ownership import SlotRegistry
from durable.model.fleet.manifest import NodeSpec
from durable.model.ids import ActorId, NodeId, PoolId, RegionId, TenantId, WorkloadName, ZoneId
from durable.model.placement.intents import Granted, Reserve
from durable.model.resources import Capacity, Resources
from durable.model.states import PolicyState
from durable.stack.ports import free_port
from durable.stack.postgres.server import EmbeddedPostgres

REGION, ACTOR, WORKLOAD = RegionId("us-east"), ActorId("bench"), WorkloadName("api")
NODES, TENANTS, SLOTS_PER_TENANT = 5_000, 50, 2_200
BATCHES = (1, 8, 32, 128, 512)
SECONDS_PER_BATCH_SIZE = 6.0
MOST_PER_BATCH_SIZE = 18_000
BAR_RATIO = 15.0
LARGE, SMALL = 128, 1


async def build(databases: Databases) -> None:
    await add_region(databases, REGION, ACTOR)
    await publish_policy(databases, 1, {}, ACTOR)
    await set_policy_state(databases, REGION, 1, PolicyState.ACTIVE, ACTOR)
    nodes = [
        NodeSpec(
            id=NodeId(f"node-{number:05}"),
            region=REGION,
            zone=ZoneId(f"z{number % 3}"),
            pool=PoolId("general"),
            capacity=Capacity(cpu_millis=64_000, memory_mib=262_144),
            devices=(),
            labels={},
            taints=(),
            dedicated_to=None,
        )
        for number in range(NODES)
    ]
    await register_nodes(databases, REGION, nodes, epoch=1, lease_ttl_seconds=3600)
    grant = Resources.of(SLOTS_PER_TENANT * 1000, SLOTS_PER_TENANT * 1024)
    for number in range(TENANTS):
        tenant = TenantId(f"tenant-{number:02}")
        await set_quota(databases, tenant, hard=grant, actor=ACTOR)
        transfer = GrantTransfer(
            id=f"seed/{tenant}", tenant=tenant, amount=grant, to_region=REGION, actor=ACTOR
        )
        await transfer_grant(databases, transfer)
        registry = SlotRegistry(databases, tenant, WORKLOAD, Division(revision=1, generation=1))
        await registry.assign(range(SLOTS_PER_TENANT), REGION, transfer="seed")


def reservation(number: int) -> Reserve:
    """The number-th of a stream that goes round the tenants and strides over the nodes."""
    return Reserve(
        region=REGION,
        tenant=TenantId(f"tenant-{number % TENANTS:02}"),
        workload=WORKLOAD,
        generation=1,
        slot=number // TENANTS,
        attempt=1,
        epoch=1,
        actor=ACTOR,
        evidence="bench",
        node=NodeId(f"node-{number * 2_677 % NODES:05}"),
        resources=Resources.of(500, 512),
        priority=100,
        policy_revision=1,
        lease_ttl_seconds=3600,
    )


async def measure(databases: Databases, size: int, first: int) -> tuple[int, float]:
    """How many reservations were committed, one batch after the other, and in what time."""
    engine = databases.at_region(REGION, "durable_commit")
    done, began = 0, time.perf_counter()
    while time.perf_counter() - began < SECONDS_PER_BATCH_SIZE and done < MOST_PER_BATCH_SIZE:
        batch = [reservation(first + done + offset) for offset in range(size)]
        outcomes = await commit_intents(engine, REGION, batch)
        assert all(isinstance(outcome, Granted) for outcome in outcomes), outcomes[0]
        done += size
    return done, time.perf_counter() - began


def single_row_commits_per_second(url: str) -> float:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE yardstick (counter bigint)")
        connection.execute("INSERT INTO yardstick VALUES (0)")
        count, began = 0, time.perf_counter()
        while time.perf_counter() - began < SECONDS_PER_BATCH_SIZE / 2:
            connection.execute("UPDATE yardstick SET counter = counter + 1")
            count += 1
        return count / (time.perf_counter() - began)


async def run(url: str) -> bool:
    rates: dict[int, float] = {}
    async with Databases(url) as databases:
        slots = TENANTS * SLOTS_PER_TENANT
        progress(f"building {NODES:,} nodes, {TENANTS} tenants, {slots:,} slots")
        await build(databases)
        yardstick = single_row_commits_per_second(url)
        progress(f"yardstick: {yardstick:,.0f} single-row commits/s")
        first = 0
        await measure(databases, LARGE, first)
        first += MOST_PER_BATCH_SIZE
        for size in BATCHES:
            done, elapsed = await measure(databases, size, first)
            first += MOST_PER_BATCH_SIZE
            rates[size] = done / elapsed
            progress(f"batch {size}: {rates[size]:,.0f} reservations/s")
        progress("checking the invariants")
        async with databases.at_global("durable_reader").begin() as connection:
            broken = await violations(connection)
    ratio = rates[LARGE] / rates[SMALL]
    holds = ratio >= BAR_RATIO and not broken
    table(
        "Reservations per second",
        ("batch", "reservations/s", "times batch 1", "times single-row commits"),
        [(size, rate, rate / rates[SMALL], rate / yardstick) for size, rate in rates.items()],
    )
    verdict(
        "authority",
        {"single_row_commits_per_second": round(yardstick, 1)},
        {
            "reservations_per_second": {size: round(rate, 1) for size, rate in rates.items()},
            "ratio_128_to_1": round(ratio, 2),
            "bar": BAR_RATIO,
            "violations": [f"{found.invariant}: {found.row}" for found in broken],
        },
        holds=holds,
    )
    return holds


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="durable-bench-") as folder:
        directory = Path(folder) / "postgres"
        directory.mkdir()
        server = EmbeddedPostgres(directory)
        server.start(free_port())
        try:
            upgrade_all(server.url(), {}, ACTOR)
            return 0 if asyncio.run(run(server.url())) else 1
        finally:
            server.stop()


if __name__ == "__main__":
    sys.exit(main())
