"""What the authority answers to reports, and what the agent makes of it."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from durable.agent.leases import Leases, Timing
from durable.agent.reconciler import ReplicaReconciler
from durable.agent.replicas import Replicas
from durable.agent.reporter import Reporter
from durable.agent.simulated.driver import SimulatedDriver
from durable.authority.fleet.assignments import Assignment
from durable.authority.fleet.node_sessions import register_nodes
from durable.model.ids import NodeId
from tests.agent.conftest import INSTANTLY, Agents
from tests.agent.region import LiveRegion, node, workload
from tests.agent.waiting import eventually
from tests.authority.world import API, EAST, RISK, T0, TEST

N1 = NodeId("n1")
UNKNOWN = 99


class Desk:
    """A reporter at work for n1, without the rest of an agent."""

    def __init__(self, region: LiveRegion, agents: Agents) -> None:
        self.driver = SimulatedDriver(INSTANTLY)
        self.leases = Leases(trusted_seconds=600)
        self.replicas = Replicas(agents.log, logs_each=False)
        self.session_ended = asyncio.Event()
        reconciler = ReplicaReconciler(self.driver, self.replicas, self.leases, lambda: 0.0)
        self.reporter = Reporter(
            region.databases,
            EAST,
            TEST,
            self.replicas,
            self.leases,
            reconciler,
            Timing(),
            agents.log,
        )

    async def start(self, token: int) -> None:
        assignment = Assignment(
            region=EAST, token=token, node=N1, tenant=RISK, workload=API, generation=1, slot=0,
            attempt=1, bound_at=T0, devices=(), spec=workload(),
        )  # fmt: skip
        self.replicas.add(assignment)
        await self.driver.start(assignment)


@pytest.fixture
async def desk(region: LiveRegion, agents: Agents) -> AsyncIterator[Desk]:
    desk = Desk(region, agents)
    await desk.driver.adopt(desk.replicas.record)
    begun = await register_nodes(
        region.databases, EAST, [node("n1")], epoch=1, lease_ttl_seconds=600
    )
    desk.leases.begun(begun, sent_at=0)
    agents.run("reporter", desk.reporter.run(desk.session_ended))
    yield desk
    await desk.driver.close()


async def test_what_the_region_never_bound_is_stopped_and_forgotten(desk: Desk) -> None:
    await desk.start(UNKNOWN)
    await eventually("it is forgotten", lambda: desk.replicas.get(UNKNOWN) is None)
    assert len(desk.replicas.pending_reports) == 0


async def test_a_replaced_session_reports_nothing_until_there_is_a_new_one(
    region: LiveRegion, desk: Desk
) -> None:
    token = await region.run()
    begun = await register_nodes(
        region.databases, EAST, [node("n1")], epoch=1, lease_ttl_seconds=600
    )
    await desk.start(token)
    await asyncio.wait_for(desk.session_ended.wait(), 30)
    assert N1 not in desk.leases.sessions
    assert (await region.observed(token))[0] is None

    desk.leases.begun(begun, sent_at=0)
    desk.replicas.report_again(begun.keys())
    await region.until(token, "serving")
