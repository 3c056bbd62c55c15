"""Recoveries for services and commands: declared, followed, and brought to their end.

key = await durable.recoveries.declare(region, reason="INC-42", request_id="INC-42")
async for now in durable.recoveries.follow(key): ...
"""

from collections.abc import AsyncIterator
from typing import Unpack

from temporalio.client import Client

from durable.authority.recovery.recoveries import newest_recovery
from durable.authority.recovery.region_facts import read_fact
from durable.model.ids import RegionId
from durable.model.recovery.detection import Suspicion
from durable.model.recovery.recoveries import UNFENCED, RecoveryKey, RecoveryProgress
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.states import RegionState
from durable.resources.reader import changes
from durable.signals.impostors import end_impostor, ensure_runs
from durable.signals.names import RECOVERY
from durable.signals.recoveries import RecoveryStatus
from durable.signals.starting import recovery_options
from durable.temporal.sender import MessageSender, OrderFields


async def begin_recovery(client: Client, suspicion: Suspicion) -> None:
    """Starts the recovery of a suspected region; one that runs is left as it is."""
    await ensure_runs(client, RECOVERY, recovery_options(suspicion.recovery))


class Recoveries:
    """The recoveries of all regions."""

    def __init__(self, sender: MessageSender) -> None:
        self._sender = sender
        self._client, self._databases = sender.client, sender.databases

    async def next_of(self, region: RegionId) -> RecoveryKey:
        """The recovery of the region's loss: the one under way, or else the next one.

        A region that is open already and is lost before all its work is back is lost once more. One
        that is fenced while its recovery ended as if it were not is that recovery's still.
        """
        newest = await newest_recovery(self._databases, region)
        fact = await read_fact(self._databases, region)
        if newest is not None and fact.is_fenced and not newest.has_ended:
            return newest.key
        due = fact.epoch if fact.is_fenced else fact.epoch + 1
        if newest is not None and newest.phase in UNFENCED and newest.epoch == due:
            return newest.key
        return RecoveryKey(region=region, epoch=fact.epoch + 1)

    async def declare(self, region: RegionId, **who: Unpack[OrderFields]) -> RecoveryKey:
        """Says that a region is lost, whatever it looks like; two for one loss are one."""
        key = await self.next_of(region)
        await end_impostor(self._client, str(key))
        await self._sender.send(key, "confirm", **who)
        return key

    async def confirm(self, region: RegionId, **who: Unpack[OrderFields]) -> str:
        """Confirms a suspicion; refused if the region is not suspected."""
        key = await self.next_of(region)
        fact = await read_fact(self._databases, region)
        known = await newest_recovery(self._databases, region)
        if fact.state is RegionState.OPEN and (known is None or known.key != key):
            raise RefusedError(
                RefusalCode.WRONG_STATE,
                f"{region} is not suspected; if it is lost, declare it: durable recovery declare "
                f"{region}.",
            )
        return await self._sender.send(key, "confirm", **who)

    async def veto(self, region: RegionId, **who: Unpack[OrderFields]) -> str:
        """Says that a region is not lost; refused once it is fenced."""
        return await self._sender.send(await self.next_of(region), "veto", **who)

    async def fail_back(self, region: RegionId, **who: Unpack[OrderFields]) -> str:
        return await self._sender.send(await self._under_way(region), "failback", **who)

    async def settle(self, region: RegionId, **who: Unpack[OrderFields]) -> str:
        return await self._sender.send(await self._under_way(region), "settle", **who)

    async def _under_way(self, region: RegionId) -> RecoveryKey:
        newest = await newest_recovery(self._databases, region)
        if newest is None or newest.has_ended:
            raise RefusedError(
                RefusalCode.WRONG_STATE,
                f"No recovery of {region} is under way; see durable get recoveries --all.",
            )
        return newest.key

    async def status(self, key: RecoveryKey) -> RecoveryStatus:
        """As its workflow knows it; one that has ended still answers."""
        handle = self._client.get_workflow_handle(str(key))
        return RecoveryStatus.read(await handle.query("status"))

    def follow(self, key: RecoveryKey) -> AsyncIterator[RecoveryProgress]:
        """The recovery whenever it has changed, until it has ended."""

        async def read() -> RecoveryProgress | None:
            return (await self.status(key)).progress

        return changes(read, lambda now: now.recovery.has_ended)
