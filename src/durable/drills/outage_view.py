"""What an outage of the authority must not change, and how much was asked meanwhile."""

from collections.abc import Mapping
from dataclasses import dataclass

from durable.authority.reads.claims import read_bindings
from durable.authority.recovery.recoveries import list_recoveries
from durable.authority.recovery.region_facts import read_facts
from durable.authority.workloads.rows import list_workloads
from durable.client import Durable
from durable.model.states import BindingState, RegionState
from durable.model.work.running import OnDisconnect
from durable.model.work.workload import WorkloadKind

MOST_WORKFLOWS = 200


@dataclass(frozen=True)
class OutageView:
    """Seen before an outage, and again afterwards."""

    closed: tuple[str, ...]
    recoveries: frozenset[str]
    # Which claim serves each replica that goes on when its node is cut off.
    kept: Mapping[str, int]
    # How long the history of each open workflow is.
    events: Mapping[str, int]

    def moved_to(self, after: "OutageView") -> list[str]:
        """The replicas that are not what they were."""
        return [name for name, token in self.kept.items() if after.kept.get(name) != token]

    def busiest(self, after: "OutageView") -> tuple[str, int]:
        """The workflow whose history grew most, and by how much."""
        grown = {
            name: after.events[name] - length
            for name, length in self.events.items()
            if name in after.events
        }
        name = max(grown, key=lambda one: grown[one], default="")
        return name, max(0, grown.get(name, 0))


async def look(durable: Durable) -> OutageView:
    databases = durable.databases
    facts = await read_facts(databases)
    keeps = {
        (one.tenant, one.workload)
        for one in await list_workloads(databases)
        if one.spec.kind is WorkloadKind.SERVICE and one.spec.run.on_disconnect is OnDisconnect.KEEP
    }
    return OutageView(
        closed=tuple(
            str(region) for region, fact in facts.items() if fact.state is not RegionState.OPEN
        ),
        recoveries=frozenset(str(one.key) for one in await list_recoveries(databases, ended=True)),
        kept={
            f"{one.tenant}/{one.workload} {one.slot}": one.token
            for region in facts
            for one in await read_bindings(databases, region)
            if (one.tenant, one.workload) in keeps and one.state is BindingState.SERVING
        },
        events=await _events(durable),
    )


async def _events(durable: Durable) -> Mapping[str, int]:
    """By workflow and run: one that continues as new begins anew."""
    found: dict[str, int] = {}
    open_ones = durable.client.list_workflows('ExecutionStatus = "Running"', limit=MOST_WORKFLOWS)
    async for one in open_ones:
        handle = durable.client.get_workflow_handle(one.id, run_id=one.run_id)
        found[f"{one.id} {one.run_id}"] = (await handle.describe()).history_length
    return found
