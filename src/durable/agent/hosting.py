"""Which nodes an agent hosts: one that describes itself, or all that a region declares."""

import asyncio
from collections.abc import Callable, Mapping

from durable.agent.agent import Agent
from durable.agent.log import Log, Troubles
from durable.authority.assignments import read_declared_nodes
from durable.authority.connection import Databases
from durable.authority.errors import AuthorityError
from durable.authority.regions import list_regions
from durable.model.ids import NodeId, RegionId
from durable.model.labels import LabelKey, LabelValue
from durable.model.regions import NodeSpec

DRIVER = LabelKey("driver")
PROCESS = LabelValue("process")
REGIONS_CHECK_SECONDS = 2.0


class OwnNode:
    """The one node that is this machine."""

    def __init__(self, spec: NodeSpec) -> None:
        self._nodes = {spec.id: spec}

    async def refresh(self) -> Mapping[NodeId, NodeSpec]:
        return self._nodes


class DeclaredNodes:
    """Every declared node of a region that no agent of its own stands for, as it is now."""

    def __init__(self, databases: Databases, region: RegionId) -> None:
        self._databases = databases
        self._region = region
        self._version = 0
        self._nodes: dict[NodeId, NodeSpec] = {}

    async def refresh(self) -> Mapping[NodeId, NodeSpec]:
        version, changed, removed = await read_declared_nodes(
            self._databases, self._region, since=self._version
        )
        for spec in changed:
            if spec.labels.get(DRIVER) == PROCESS:
                self._nodes.pop(spec.id, None)
            else:
                self._nodes[spec.id] = spec
        for node in removed:
            self._nodes.pop(node, None)
        self._version = version
        return self._nodes


async def host_every_region(
    databases: Databases, agent_of: Callable[[RegionId], Agent], log: Log
) -> None:
    """Hosts each region from when it appears, until cancelled."""
    hosted: set[RegionId] = set()
    troubles = Troubles(log)
    async with asyncio.TaskGroup() as tasks:
        while True:
            try:
                for region in await list_regions(databases):
                    if region not in hosted:
                        hosted.add(region)
                        log("hosting", region=region)
                        tasks.create_task(agent_of(region).run())
                troubles.over("read the regions")
            except AuthorityError as error:
                troubles.met("read the regions", error)
            await asyncio.sleep(REGIONS_CHECK_SECONDS)
