"""Policies for services and commands: published, promoted, followed and taken back.

revision = await durable.policies.publish(policy, reason="spread wider")
await durable.policies.promote(revision, reason="CHG-7", request_id="CHG-7")
async for now in durable.policies.follow(revision): ...
"""

import asyncio
import uuid
from collections.abc import AsyncIterator
from typing import Any

from temporalio.client import Client, WithStartWorkflowOperation

from durable.authority.db.connection import Databases
from durable.authority.fleet.regions import list_regions
from durable.authority.policies.publishing import publish_next
from durable.authority.policies.region_reads import read_reports
from durable.authority.policies.rows import list_rollouts
from durable.model.ids import ActorId, PolicyRevision, RegionId
from durable.model.policy.policy import Policy
from durable.model.policy.rollout import (
    PolicyProgress,
    PolicyRollout,
    PolicyStage,
    RolledBack,
)
from durable.model.refusal import RefusalCode, RefusedError
from durable.plan.shadow import Shadow
from durable.planners.policy_rollout.shadow import admits_nothing
from durable.scheduling.policies import check_policy
from durable.signals.names import NEXT_POLICY, POLICY, policy_id
from durable.signals.payloads import OperatorRequest
from durable.signals.policies import (
    PausePolicy,
    PolicyStatus,
    PromotePolicy,
    PublishPolicy,
    RollBackPolicy,
)
from durable.signals.starting import policy_options
from durable.temporal.signing import Signer
from durable.temporal.updates import StartedUpdates, send_until_answered

POLL_SECONDS = 0.5


class Policies:
    """The revisions of the scheduler policy."""

    def __init__(
        self, client: Client, databases: Databases, actor: ActorId, signer: Signer
    ) -> None:
        self._client, self._databases, self._actor = client, databases, actor
        self._signer, self._updates = signer, StartedUpdates(client, signer)

    async def publish(self, policy: Policy, *, reason: str) -> PolicyRevision:
        """The revision with this content; refused if it would place nothing of what runs now."""
        check_policy(policy)
        shadow = Shadow(self._databases, policy)
        compared = await shadow.compare_all(await list_regions(self._databases))
        if admits_nothing(compared.by_region.values()):
            raise RefusedError(
                RefusalCode.INVALID,
                "It would place nothing of what was placed recently, so it was not published; "
                "the last revision stays in force.",
            )
        who = self._who(reason, f"publish-{uuid.uuid4()}")
        publication = PublishPolicy(**who, spec=policy.model_dump(mode="json"))
        signed = self._signer.sign(NEXT_POLICY, "publish", publication)
        revision = await publish_next(self._databases, signed)
        await self._client.start_workflow(  # pyright: ignore[reportUnknownMemberType]
            POLICY, {"revision": revision}, **policy_options(revision)
        )
        return revision

    async def promote(
        self,
        revision: PolicyRevision,
        *,
        reason: str,
        request_id: str,
        canary: RegionId | None = None,
        after: int | None = None,
    ) -> str:
        """Begins with one region, or goes on; sent again, it counts once."""
        message = PromotePolicy(**self._who(reason, request_id), canary=canary, after=after)
        return await self._send(revision, "promote", message)

    async def pause(
        self,
        revision: PolicyRevision,
        *,
        reason: str,
        request_id: str,
        after: int | None = None,
    ) -> str:
        message = PausePolicy(**self._who(reason, request_id), after=after)
        return await self._send(revision, "pause", message)

    async def roll_back(
        self,
        revision: PolicyRevision,
        *,
        reason: str,
        request_id: str,
        to: PolicyRevision | None = None,
        reroll: bool = False,
        after: int | None = None,
    ) -> str:
        """Takes the revision back everywhere; with `reroll`, replaces what it has placed."""
        who = self._who(reason, request_id)
        message = RollBackPolicy(**who, to=to, reroll=reroll, after=after)
        return await self._send(revision, "rollback", message)

    async def newest_in_force(self) -> PolicyRollout:
        """What a rollback is about: the revision on its way, or else the newest in force."""
        listed = [one.rollout for one in await list_rollouts(self._databases)]
        on_its_way = (PolicyStage.CANARY, PolicyStage.WIDENING)
        for stages in (on_its_way, (PolicyStage.EVERYWHERE,)):
            found = next((one for one in listed if one.stage in stages), None)
            if found is not None:
                return found
        raise RefusedError(
            RefusalCode.WRONG_STATE,
            "No revision is being promoted or in force everywhere; name the one to take back with "
            "`--revision`, see `durable policy list`.",
        )

    async def report(self, revision: PolicyRevision) -> RolledBack:
        """What became of each workload's replicas when the revision was rolled back."""
        return await read_reports(self._databases, revision)

    async def status(self, revision: PolicyRevision) -> PolicyStatus:
        """As its workflow knows it; one that has ended still answers."""
        handle = self._client.get_workflow_handle(policy_id(revision))
        return PolicyStatus.read(await handle.query("status"))

    async def follow(self, revision: PolicyRevision) -> AsyncIterator[PolicyProgress]:
        """The revision whenever it has changed, until it has settled or waits for a person."""
        last: PolicyProgress | None = None
        while True:
            progress = (await self.status(revision)).progress
            if progress is not None and progress != last:
                last = progress
                yield progress
            if progress is not None and _waits_for_a_person(progress):
                return
            await asyncio.sleep(POLL_SECONDS)

    def _who(self, reason: str, request_id: str) -> dict[str, Any]:
        return {"actor": self._actor, "reason": reason, "request_id": request_id}

    async def _send(self, revision: PolicyRevision, name: str, message: OperatorRequest) -> str:
        return await send_until_answered(
            f"{name} policy {revision}",
            lambda: self._update_with_start(revision, name, message),
            unknown=RefusalCode.UNKNOWN_POLICY,
            see="durable policy list",
        )

    async def _update_with_start(
        self, revision: PolicyRevision, update: str, message: OperatorRequest
    ) -> str:
        """With a start: one that has ended, or was terminated, goes on and hears of it."""
        start: WithStartWorkflowOperation[Any, Any] = WithStartWorkflowOperation(
            POLICY, {"revision": revision}, **policy_options(revision)
        )
        return await self._updates.send(start, policy_id(revision), update, message, str)


def _waits_for_a_person(progress: PolicyProgress) -> bool:
    rollout = progress.rollout
    return rollout.is_settled or rollout.is_paused or rollout.stage is PolicyStage.SHADOW
