"""Policies for services and commands: published, promoted, followed and rolled back.

revision = await durable.policies.publish(policy, reason="spread wider")
await durable.policies.promote(revision, reason="CHG-7", request_id="CHG-7")
async for now in durable.policies.follow(revision): ...
"""

import uuid
from collections.abc import AsyncIterator
from typing import Any, Unpack

from durable.authority.fleet.regions import list_regions
from durable.authority.policies.publishing import publish_next
from durable.authority.policies.region_reads import read_reports
from durable.authority.policies.rows import list_rollouts
from durable.model.ids import PolicyRevision, RegionId
from durable.model.policy.policy import Policy
from durable.model.policy.rollout import (
    PolicyPhase,
    PolicyProgress,
    PolicyRollout,
    RolledBack,
)
from durable.model.refusal import RefusalCode, RefusedError
from durable.plan.shadow import Shadow
from durable.planners.policy_rollout.shadow import admits_nothing
from durable.resources.reader import changes
from durable.scheduling.policies import check_policy
from durable.signals.names import NEXT_POLICY, POLICY, policy_id
from durable.signals.policies import PolicyStatus, PublishPolicy
from durable.signals.starting import policy_options
from durable.temporal.sender import MessageSender, OrderFields


class Policies:
    """The revisions of the scheduler policy."""

    def __init__(self, sender: MessageSender) -> None:
        self._sender = sender
        self._client, self._databases = sender.client, sender.databases

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
        publication = PublishPolicy(
            actor=self._sender.actor,
            reason=reason,
            request_id=f"publish-{uuid.uuid4()}",
            spec=policy.model_dump(mode="json"),
        )
        signed = self._sender.signer.sign(NEXT_POLICY, "publish", publication)
        revision = await publish_next(self._databases, signed)
        await self._client.start_workflow(  # pyright: ignore[reportUnknownMemberType]
            POLICY, {"revision": revision}, **policy_options(revision)
        )
        return revision

    async def promote(
        self,
        revision: PolicyRevision,
        *,
        canary: RegionId | None = None,
        after: int | None = None,
        **who: Unpack[OrderFields],
    ) -> str:
        """Begins with one region, or goes on; sent again, it counts once."""
        return await self._sender.send(revision, "promote", canary=canary, after=after, **who)

    async def pause(
        self, revision: PolicyRevision, *, after: int | None = None, **who: Unpack[OrderFields]
    ) -> str:
        """Brings it into force nowhere else until it is promoted again."""
        return await self._sender.send(revision, "pause", after=after, **who)

    async def roll_back(
        self,
        revision: PolicyRevision,
        *,
        to: PolicyRevision | None = None,
        reroll: bool = False,
        after: int | None = None,
        **who: Unpack[OrderFields],
    ) -> str:
        """Rolls the revision back everywhere; with `reroll`, replaces what it has placed."""
        what: dict[str, Any] = {"to": to, "reroll": reroll, "after": after}
        return await self._sender.send(revision, "rollback", **what, **who)

    async def newest_in_force(self) -> PolicyRollout:
        """What a rollback is about: the revision on its way, or else the newest in force."""
        listed = [one.rollout for one in await list_rollouts(self._databases)]
        on_its_way = (PolicyPhase.CANARY, PolicyPhase.WIDENING)
        for phases in (on_its_way, (PolicyPhase.EVERYWHERE,)):
            found = next((one for one in listed if one.phase in phases), None)
            if found is not None:
                return found
        raise RefusedError(
            RefusalCode.WRONG_STATE,
            "No revision is being promoted or in force everywhere; name the one to roll back with "
            "`--revision`, see `durable policy list`.",
        )

    async def report(self, revision: PolicyRevision) -> RolledBack:
        """What became of each workload's replicas when the revision was rolled back."""
        return await read_reports(self._databases, revision)

    async def status(self, revision: PolicyRevision) -> PolicyStatus:
        """As its workflow knows it; one that has ended still answers."""
        handle = self._client.get_workflow_handle(policy_id(revision))
        return PolicyStatus.read(await handle.query("status"))

    def follow(self, revision: PolicyRevision) -> AsyncIterator[PolicyProgress]:
        """The revision whenever it has changed, until it has ended or waits for a person."""

        async def read() -> PolicyProgress | None:
            return (await self.status(revision)).progress

        return changes(read, _waits_for_a_person)


def _waits_for_a_person(progress: PolicyProgress) -> bool:
    rollout = progress.rollout
    return rollout.is_settled or rollout.is_paused or rollout.phase is PolicyPhase.SHADOW
