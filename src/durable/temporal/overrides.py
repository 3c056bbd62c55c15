"""Overrides for services and commands: proposed, approved, extended and ended.

held = await durable.overrides.create(
    "hold", {"tenant": "risk", "workload": "risk-api"}, reason="INC-42", ttl=timedelta(minutes=30)
)
"""

import uuid
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Unpack

from durable.authority.overrides.rows import read_override, unknown_override
from durable.model.ids import OverrideId
from durable.model.overrides.override import Override
from durable.model.refusal import RefusedError
from durable.signals.names import override_id
from durable.temporal.sender import MessageSender, OrderFields


class Overrides:
    """The overrides of everything."""

    def __init__(self, sender: MessageSender) -> None:
        self._sender = sender

    async def create(
        self,
        kind: str,
        scope: Mapping[str, str],
        *,
        effect: Mapping[str, Any] | None = None,
        ttl: timedelta | None = None,
        ticket: str | None = None,
        id: str | None = None,
        **who: Unpack[OrderFields],
    ) -> tuple[Override, str]:
        """Proposes it; the override, and the answer to its sender."""
        override = new_id(kind) if id is None else OverrideId(id)
        what = {"kind": kind, "scope": dict(scope), "effect": dict(effect or {})}
        answer = await self._sender.send(override, "propose", **what, ttl=ttl, ticket=ticket, **who)
        return await self.read(override), answer

    async def approve(self, id: str, **who: Unpack[OrderFields]) -> str:
        """Agrees to what another person proposed."""
        return await self._change(id, "approve", **who)

    async def reject(self, id: str, **who: Unpack[OrderFields]) -> str:
        """Refuses what was proposed; it never has an effect."""
        return await self._change(id, "reject", **who)

    async def revoke(self, id: str, **who: Unpack[OrderFields]) -> str:
        """Ends it now."""
        return await self._change(id, "revoke", **who)

    async def extend(self, id: str, by: timedelta, **who: Unpack[OrderFields]) -> str:
        """Lets it last longer."""
        return await self._change(id, "extend", by=by, **who)

    async def read(self, id: str) -> Override:
        """The override as the authority has it."""
        found = await read_override(self._sender.databases, OverrideId(id))
        if found is None:
            raise unknown_override(OverrideId(id))
        return found

    async def _change(self, id: str, name: str, **fields: Any) -> str:
        """Not of one that was never proposed: it would be started to refuse that."""
        override = OverrideId(id)
        try:
            await self.read(override)
        except RefusedError as refused:
            await self._sender.audit(override_id(override), refused)
            raise
        return await self._sender.send(override, name, **fields)


def new_id(kind: str) -> OverrideId:
    """A name that is not used yet, and that says what it is."""
    return OverrideId(f"{kind[:40]}-{uuid.uuid4().hex[:8]}")
