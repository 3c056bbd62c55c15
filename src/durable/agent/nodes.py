"""Which nodes an agent hosts: one that describes itself, or all that a region declares."""

from collections.abc import Callable, Mapping
from typing import Protocol

from durable.authority.db.connection import Databases
from durable.authority.fleet.node_reads import read_declared_nodes
from durable.model.fleet.labels import LabelKey, LabelValue
from durable.model.fleet.manifest import NodeSpec
from durable.model.ids import NodeId, RegionId

# A node with this label has an agent of its own, so nobody may simulate it.
DRIVER = LabelKey("driver")
PROCESS = LabelValue("process")


class HostedNodes(Protocol):
    """The nodes that an agent hosts in its region, as they are described now."""

    async def refresh(self) -> Mapping[NodeId, NodeSpec]: ...


class OwnNode:
    """The one node that is this machine."""

    def __init__(self, spec: NodeSpec) -> None:
        self._nodes = {spec.id: spec}

    async def refresh(self) -> Mapping[NodeId, NodeSpec]:
        return self._nodes


class DeclaredNodes:
    """Every declared node of a region that has no agent of its own, but for those that are lost."""

    def __init__(
        self,
        databases: Databases,
        region: RegionId,
        is_lost: Callable[[NodeSpec], bool] = lambda _: False,
    ) -> None:
        self._databases = databases
        self._is_lost = is_lost
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
        return {node: spec for node, spec in self._nodes.items() if not self._is_lost(spec)}
