"""How tests give an override and end it, through a real Temporal, and what its audit must tell."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import text

from durable.authority.audit.events import read_events
from durable.authority.db.engine import AsyncConnection
from durable.authority.db.transaction import global_transaction
from durable.authority.overrides.changes import ACTOR
from durable.authority.overrides.reads import obeyed_overrides
from durable.authority.overrides.rows import ROLE
from durable.model.ids import OverrideId, RegionId
from durable.model.overrides.override import Override
from durable.model.states import OverrideState
from durable.signals.names import override_id
from durable.signals.payloads import Look
from tests.workflows.keys import Person
from tests.workflows.plane import EAST, Plane, until

# As if its end had been so close all the time; a region obeys the earlier end under a new number.
_SHORTEN = text("""
    UPDATE global.overrides
       SET number = number + 1, expires_at = clock_timestamp() + interval '0.5 seconds'
     WHERE override = :override
""")


@dataclass(frozen=True)
class Pair:
    """Two people with keys: what one proposes, the other approves, and the first may revoke."""

    plane: Plane
    ann: Person
    ada: Person

    @classmethod
    async def make(cls, plane: Plane, keys: Path) -> "Pair":
        ann, ada = [await Person.make(plane, keys, f"person:{one}") for one in ("ann", "ada")]
        return cls(plane, ann, ada)

    async def give(
        self,
        kind: str,
        scope: Mapping[str, str],
        *,
        id: str,
        effect: Mapping[str, Any] | None = None,
    ) -> Override:
        """In force in every region it means when this returns."""
        async with self.ann.connected(self.plane) as hers:
            made, _ = await hers.overrides.create(kind, scope, effect=effect, reason="INC-1", id=id)
        if made.of_kind.needs_approval:
            assert made.state is OverrideState.PROPOSED
            async with self.ada.connected(self.plane) as hers:
                await hers.overrides.approve(id, reason="agreed")
        given = await self.plane.durable.overrides.read(id)
        assert given.state is OverrideState.ACTIVE
        assert id in await obeyed_overrides(self.plane.databases, _region_of(given))
        return given

    async def let_expire(self, override: Override) -> None:
        await shorten(self.plane.databases, override.id)
        handle = self.plane.durable.client.get_workflow_handle(override_id(override.id))
        await handle.signal("look", Look(why="its end came closer"))
        await self._has_ended(override, OverrideState.EXPIRED)

    async def revoke(self, override: Override) -> None:
        async with self.ann.connected(self.plane) as hers:
            await hers.overrides.revoke(override.id, reason="over")
        await self._has_ended(override, OverrideState.REVOKED)

    async def _has_ended(self, override: Override, state: OverrideState) -> None:
        """Everywhere; and every step is in the audit, with who took it."""
        region = _region_of(override)

        async def has_ended() -> bool:
            return override.id not in await obeyed_overrides(self.plane.databases, region)

        await until(has_ended, "the region knows that it has ended")
        ended = await self.plane.durable.overrides.read(override.id)
        assert ended.state is state
        assert ended.ended_at is not None
        assert state is OverrideState.REVOKED or ended.ended_at >= ended.expires_at
        agreed = str(ended.approver or ended.actor)
        ender = str(ACTOR) if state is OverrideState.EXPIRED else str(self.ann.actor)
        story = await read_story(self.plane, override.id)
        assert story["global"] == [
            ("person:ann", "propose override"), (agreed, "activate override"),
            (ender, "end override"),
        ]  # fmt: skip
        # Of one whose end came closer, the region has heard of that, too.
        in_region = [one for one in story[region] if one[1] != "extend override"]
        assert in_region == [(agreed, "put override in force"), (ender, "end override")]


End = Callable[[Pair, Override], Awaitable[None]]
ENDS: tuple[End, ...] = (Pair.let_expire, Pair.revoke)


def _region_of(override: Override) -> RegionId:
    """One that obeys it."""
    return override.scope.region or EAST


@global_transaction(ROLE, "shorten override {override}")
async def shorten(connection: AsyncConnection, override: OverrideId) -> None:
    await connection.execute(_SHORTEN, {"override": override})


async def read_story(plane: Plane, override: OverrideId) -> dict[str, list[tuple[str, str]]]:
    """By chain, who did what to it."""
    events, _ = await read_events(plane.databases, last=1_000)
    story: dict[str, list[tuple[str, str]]] = {}
    for one in events:
        if one.object == override_id(override):
            story.setdefault(str(one.chain), []).append((str(one.actor), one.action))
    return story
