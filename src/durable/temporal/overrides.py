"""Overrides for services and commands: proposed, approved, extended and ended.

held = await durable.overrides.create(
    "hold", {"tenant": "risk", "workload": "risk-api"}, reason="INC-42", ttl=timedelta(minutes=30)
)
"""

import uuid
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from pydantic import ValidationError
from temporalio.client import Client, WithStartWorkflowOperation

from durable.authority.db.connection import Databases
from durable.authority.operators.refusals import record_refusal
from durable.authority.overrides.rows import read_override, unknown_override
from durable.model.ids import ActorId, OverrideId
from durable.model.overrides.override import Override
from durable.model.refusal import RefusalCode, RefusedError
from durable.signals.names import OVERRIDE, override_id
from durable.signals.overrides import (
    ApproveOverride,
    ExtendOverride,
    ProposeOverride,
    RejectOverride,
    RevokeOverride,
)
from durable.signals.payloads import OperatorRequest
from durable.signals.starting import override_options
from durable.temporal.signing import Signer
from durable.temporal.updates import StartedUpdates, send_until_answered
from durable.validation.problems import in_one_line, problems_in


class Overrides:
    """The overrides of everything."""

    def __init__(
        self, client: Client, databases: Databases, actor: ActorId, signer: Signer
    ) -> None:
        self._client, self._databases, self._actor = client, databases, actor
        self._updates = StartedUpdates(client, signer)

    async def create(
        self,
        kind: str,
        scope: Mapping[str, str],
        *,
        reason: str,
        effect: Mapping[str, Any] | None = None,
        ttl: timedelta | None = None,
        ticket: str | None = None,
        id: str | None = None,
        request_id: str | None = None,
    ) -> tuple[Override, str]:
        """Proposes it; answers the override and what its sender is told."""
        override = new_id(kind) if id is None else OverrideId(id)
        content = {
            **self._who(reason, request_id), "kind": kind, "scope": dict(scope),
            "effect": dict(effect or {}), "ttl": ttl, "ticket": ticket,
        }  # fmt: skip
        try:
            proposal = ProposeOverride.model_validate(content)
        except ValidationError as error:
            problems = in_one_line(problems_in(error, ProposeOverride))
            refused = RefusedError(RefusalCode.INVALID, problems[:500])
            await self._audit(override, refused)
            raise refused from None
        answer = await self._send(override, "propose", proposal)
        return await self.read(override), answer

    async def approve(self, id: str, *, reason: str, request_id: str | None = None) -> str:
        """Agrees to what somebody else proposed."""
        return await self._change(id, "approve", ApproveOverride, reason, request_id)

    async def reject(self, id: str, *, reason: str, request_id: str | None = None) -> str:
        return await self._change(id, "reject", RejectOverride, reason, request_id)

    async def revoke(self, id: str, *, reason: str, request_id: str | None = None) -> str:
        """Ends it now."""
        return await self._change(id, "revoke", RevokeOverride, reason, request_id)

    async def extend(
        self, id: str, by: timedelta, *, reason: str, request_id: str | None = None
    ) -> str:
        return await self._change(id, "extend", ExtendOverride, reason, request_id, by=by)

    async def read(self, id: str) -> Override:
        """The override as the authority has it."""
        found = await read_override(self._databases, OverrideId(id))
        if found is None:
            raise unknown_override(OverrideId(id))
        return found

    async def _change(
        self,
        id: str,
        update: str,
        payload: type[OperatorRequest],
        reason: str,
        request_id: str | None,
        **fields: Any,
    ) -> str:
        try:
            override = await self.read(id)
        except RefusedError as refused:
            await self._audit(OverrideId(id), refused)
            raise
        message = payload.model_validate({**self._who(reason, request_id), **fields})
        return await self._send(override.id, update, message)

    async def _audit(self, override: OverrideId, refused: RefusedError) -> None:
        """What no workflow hears of is in the audit all the same."""
        target = override_id(override)
        await record_refusal(self._databases, self._actor, target, refused.refusal)

    def _who(self, reason: str, request_id: str | None) -> dict[str, Any]:
        return {
            "actor": self._actor, "reason": reason, "request_id": request_id or str(uuid.uuid4()),
        }  # fmt: skip

    async def _send(self, override: OverrideId, update: str, message: OperatorRequest) -> str:
        return await send_until_answered(
            f"{update} {override_id(override)}",
            # With a start: one that was terminated goes on, and then hears of it.
            lambda: self._update_with_start(override, update, message),
            unknown=RefusalCode.UNKNOWN_OVERRIDE,
            see="durable get overrides",
        )

    async def _update_with_start(
        self, override: OverrideId, update: str, message: OperatorRequest
    ) -> str:
        start: WithStartWorkflowOperation[Any, Any] = WithStartWorkflowOperation(
            OVERRIDE, **override_options(override)
        )
        return await self._updates.send(start, override_id(override), update, message, str)


def new_id(kind: str) -> OverrideId:
    """A name that nobody has used, and that says what it is."""
    return OverrideId(f"{kind[:40]}-{uuid.uuid4().hex[:8]}")
