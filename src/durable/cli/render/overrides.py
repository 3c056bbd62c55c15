"""Overrides for people: rows of a list, and one in full."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import ClassVar

from durable.authority.overrides.reads import RegionalEffect
from durable.cli.render.tables import Row
from durable.model.ids import ActorId, OverrideId, RegionId
from durable.model.overrides.override import Override
from durable.model.resources import show_amounts
from durable.model.states import OverrideState
from durable.validation.quantities import show_roughly
from durable.validation.text import counted

Effects = Mapping[RegionId, Mapping[OverrideId, RegionalEffect]]


class OverrideRow(Row):
    json_only: ClassVar[frozenset[str]] = frozenset(
        {"ticket", "approver", "expires_at", "latest_expiry", "proposed_at", "ended_at", "regions"}
    )

    override: OverrideId
    kind: str
    scope: str
    state: OverrideState
    left: str
    by: ActorId
    reason: str
    effect: str
    ticket: str
    approver: ActorId | None
    proposed_at: datetime
    expires_at: datetime
    latest_expiry: datetime
    ended_at: datetime | None
    regions: tuple[RegionId, ...]

    @property
    def lines(self) -> list[str]:
        """Everything that is known of it, a line each."""
        shown = {
            "override": self.override,
            "kind": self.kind,
            "scope": self.scope,
            "state": self.state.value,
            "time left": self.left,
            "by": self.by,
            "reason": self.reason,
            "ticket": self.ticket,
            "approved by": self.approver,
            "effect": self.effect,
            "proposed": _moment(self.proposed_at),
            **self._ends,
            "obeyed in": ", ".join(self.regions),
        }
        return [f"{name}: {value}" for name, value in shown.items() if value]

    @property
    def _ends(self) -> dict[str, str]:
        if self.state is OverrideState.PROPOSED:
            return {"to be approved before": _moment(self.expires_at)}
        if self.ended_at is not None:
            return {"ended": _moment(self.ended_at)}
        latest = _moment(self.latest_expiry)
        return {"ends": _moment(self.expires_at), "may be extended until": latest}


def _moment(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S}Z"


def override_row(override: Override, effects: Effects, now: datetime) -> OverrideRow:
    by_region = {
        region: found[override.id] for region, found in effects.items() if override.id in found
    }
    return OverrideRow(
        override=override.id,
        kind=override.kind,
        scope=str(override.scope),
        state=override.state,
        left=time_left(override, now),
        by=override.actor,
        reason=override.reason,
        effect=_effect(override, by_region),
        ticket=override.ticket,
        approver=override.approver,
        proposed_at=override.proposed_at,
        expires_at=override.expires_at,
        latest_expiry=override.latest_expiry,
        ended_at=override.ended_at,
        regions=tuple(region for region, one in by_region.items() if one.is_obeyed),
    )


def time_left(override: Override, now: datetime) -> str:
    """How long it still lasts, or may still be approved."""
    if override.has_ended:
        return ""
    left = override.expires_at - now
    if left < timedelta(seconds=1):
        return "ends now"
    return show_roughly(left)


def _effect(override: Override, by_region: Mapping[RegionId, RegionalEffect]) -> str:
    parts = [
        part for region, one in by_region.items() if (part := _in_region(override, region, one))
    ]
    if override.outcome:
        parts.insert(0, override.outcome)
    if not parts and override.state is OverrideState.PROPOSED:
        return "none yet: somebody else has to approve it"
    if not parts and by_region:
        return f"obeyed in {', '.join(by_region)}"
    return "; ".join(parts)


def _in_region(override: Override, region: RegionId, effect: RegionalEffect) -> str:
    if effect.used is not None and effect.draw is not None:
        is_quota = override.effects.draw is not None
        after = "over quota until that has ended" if is_quota else "until that is replaced"
        over = "" if effect.is_obeyed else f", {after}"
        return f"{region}: {show_amounts(effect.used)} of {show_amounts(effect.draw)} in use{over}"
    if effect.marked:
        moved = effect.marked - effect.left_to_move
        return f"{region}: {moved} of {counted(effect.marked, 'replica')} moved"
    if effect.held_back:
        return f"{region}: {counted(effect.held_back, 'replica')} held back"
    return ""
