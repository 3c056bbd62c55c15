"""Everything that may keep a placement from going through, looked at once and within seconds."""

import asyncio

from temporalio.client import Client

from durable.authority.db.connection import Databases
from durable.authority.recovery.region_facts import read_facts
from durable.authority.restores.found import read_went_back
from durable.health.disks import full_disks
from durable.health.findings import FindingCode as Code
from durable.health.findings import HealthFinding, finding
from durable.health.regions import (
    impaired,
    read_regions,
    silent,
    unready,
    unserved,
    went_back,
)
from durable.health.workflows import WorkflowHealth, read_workflow_health
from durable.model.ids import TenantId
from durable.settings import Settings
from durable.state_dir.record import StackError, is_running, read_record
from durable.temporal.connection import connect

TEMPORAL_SECONDS = 10.0
SILENT = f"Temporal did not answer within {TEMPORAL_SECONDS:.0f} s"


async def diagnose(
    settings: Settings, databases: Databases, temporal_address: str | None
) -> list[HealthFinding]:
    """What is wrong now; without an address of Temporal, only what the authority knows.

    An AuthorityError says that the global side does not answer: then nothing can be known.
    """
    regions, unreachable = await read_regions(databases)
    facts = await read_facts(databases)
    found = [
        *full_disks_of(settings), *unreachable, *went_back(await read_went_back(databases)),
        *unready(regions), *impaired(facts.values()),
    ]  # fmt: skip
    if temporal_address is None:
        return found
    try:
        async with asyncio.timeout(TEMPORAL_SECONDS):
            client = await connect(settings, temporal_address)
            found += await unserved(client, databases, regions)
            # Side by side: where a sign is missing, the next one is waited for.
            hung, workflows = await asyncio.gather(
                silent(client, databases), read_workflow_health(client, databases)
            )
            found += [*hung, *workflows.findings]
    except (StackError, TimeoutError) as error:
        found.append(finding(Code.TEMPORAL_UNREACHABLE, why=(str(error) or SILENT).rstrip(".")))
    return found


async def workflow_health(
    client: Client, databases: Databases, tenant: TenantId | None
) -> WorkflowHealth:
    """The workflows alone, for those who list them; a StackError says why they are unknown."""
    try:
        async with asyncio.timeout(TEMPORAL_SECONDS):
            return await read_workflow_health(client, databases, tenant)
    except TimeoutError:
        raise StackError(f"{SILENT}.") from None


def full_disks_of(settings: Settings) -> list[HealthFinding]:
    """Of the stack in the state directory, if one runs there."""
    path = settings.state_dir.absolute()
    record = read_record(path) if is_running(path) else None
    return [] if record is None else full_disks(path, record)
