"""One override: who asked for what, why, until when, and what may become of it."""

from datetime import datetime, timedelta
from typing import Annotated, Any, cast

from pydantic import AwareDatetime, Field, JsonValue

from durable.model.ids import ActorId, OverrideId, RegionId
from durable.model.operators.rights import OperatorKind
from durable.model.overrides.effects import Effects, OverrideScope
from durable.model.overrides.in_force import RegionalOverride
from durable.model.overrides.kind import Kind
from durable.model.overrides.kinds import KINDS
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.states import OverrideState
from durable.validation.quantities import Duration, show_duration
from durable.validation.text import PlainText, show_moment
from durable.validation.value import Value

# A proposal that is not approved lapses.
PROPOSAL_LASTS = timedelta(hours=4)
ENDED = frozenset({OverrideState.EXPIRED, OverrideState.REVOKED, OverrideState.REJECTED})


class Override(Value):
    """An override as the global side knows it."""

    id: OverrideId
    kind: str
    scope: OverrideScope
    effect: dict[str, JsonValue]
    actor: ActorId
    reason: PlainText
    ticket: str = ""
    ttl: Duration
    approver: ActorId | None = None
    # Who made its latest change.
    changed_by: ActorId | None = None
    state: OverrideState = OverrideState.PROPOSED
    # It grows with every change: a region's copy of an older one is replaced, never the reverse.
    number: Annotated[int, Field(ge=1)] = 1
    proposed_at: AwareDatetime
    activated_at: AwareDatetime | None = None
    # While it is proposed, when the proposal lapses.
    expires_at: AwareDatetime
    latest_expiry: AwareDatetime
    ended_at: AwareDatetime | None = None
    # Who ended it and why.
    outcome: str = ""

    @property
    def of_kind(self) -> Kind:
        return KINDS[self.kind]

    @property
    def effects(self) -> Effects:
        return effects_of(self.of_kind, self.scope, self.effect)

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED

    @property
    def needs_approval(self) -> bool:
        return self.of_kind.needs_approval

    def is_in_force(self, now: datetime) -> bool:
        """Whatever the state says, time has the last word."""
        return self.state is OverrideState.ACTIVE and now < self.expires_at

    def regional(self) -> RegionalOverride:
        """What regions have to know of it."""
        return RegionalOverride(
            override=self.id,
            kind=self.kind,
            scope=self.scope,
            effects=self.effects,
            actor=self.actor,
            reason=self.reason,
            expires_at=self.expires_at,
        )

    def regions(self, known: list[RegionId]) -> list[RegionId]:
        """The regions that must have a copy."""
        return [region for region in known if self.scope.region in (None, region)]

    def __str__(self) -> str:
        return f"{self.kind} on {self.scope}"


def effects_of(kind: Kind, scope: OverrideScope, effect: dict[str, JsonValue]) -> Effects:
    return kind.effect.read(cast(Any, effect)).effects(scope)


# ── what may become of it ───────────────────────────────────────────────────────────────────────


def check_approval(
    override: Override, actor: ActorId, now: datetime, *, kind: OperatorKind
) -> None:
    """Refuses an approval that would not be by a second person, in time, of a proposal."""
    _refuse_ended(override, now)
    if override.state is not OverrideState.PROPOSED:
        raise RefusedError(
            RefusalCode.WRONG_STATE,
            f"Override {override.id} is {override.state}, approved by "
            f"{override.approver or 'no one, because its kind needs no approval'}; nothing is left "
            "to approve.",
        )
    if actor == override.actor:
        raise RefusedError(
            RefusalCode.SELF_APPROVAL,
            f"{actor} proposed override {override.id}, so another person has to approve it.",
        )
    _refuse_service(actor, kind, "approve")


def check_rejection(override: Override, now: datetime) -> None:
    _refuse_ended(override, now)
    if override.state is not OverrideState.PROPOSED:
        raise RefusedError(
            RefusalCode.WRONG_STATE,
            f"Override {override.id} is in force; send `revoke` to end it.",
        )


def check_revocation(override: Override, now: datetime) -> None:
    _refuse_ended(override, now)


def check_extension(
    override: Override, actor: ActorId, by: timedelta, now: datetime, *, kind: OperatorKind
) -> datetime:
    """When it would end then; refuses what goes past the maximum, or needs another person."""
    _refuse_ended(override, now)
    if override.state is not OverrideState.ACTIVE:
        raise RefusedError(
            RefusalCode.WRONG_STATE,
            f"Override {override.id} is not in force yet; it lasts "
            f"{show_duration(override.ttl)} from its approval on.",
        )
    if not override.of_kind.extends_alone and actor == override.actor:
        raise RefusedError(
            RefusalCode.SELF_APPROVAL,
            f"{actor} proposed override {override.id}, and {override.kind} is not extended by one "
            "person alone; have another person send `extend`.",
        )
    if not override.of_kind.extends_alone:
        _refuse_service(actor, kind, "extend")
    until = override.expires_at + by
    if until > override.latest_expiry:
        longest = show_duration(override.of_kind.longest_ttl)
        raise RefusedError(
            RefusalCode.TTL_TOO_LONG,
            f"{override.kind} lasts at most {longest}, so override {override.id} ends at the latest"
            f" at {show_moment(override.latest_expiry)}; extend it by less, or propose "
            "another one.",
        )
    return until


def is_overdue(override: Override, now: datetime) -> bool:
    """Whether its time, or the time to approve it, is over and that was not recorded yet."""
    return not override.has_ended and override.expires_at <= now


def _refuse_service(actor: ActorId, kind: OperatorKind, what: str) -> None:
    """A person who runs a service would be the first person and the second one."""
    if kind is OperatorKind.SERVICE:
        raise RefusedError(
            RefusalCode.NOT_ALLOWED,
            f"{actor} is a service, and a second person is needed; have a person {what} it.",
        )


def _refuse_ended(override: Override, now: datetime) -> None:
    if override.has_ended:
        raise RefusedError(
            RefusalCode.OVERRIDE_ENDED,
            f"Override {override.id} has ended: {override.outcome or override.state}; propose "
            "another one.",
        )
    if override.expires_at <= now:
        was = "was in force" if override.state is OverrideState.ACTIVE else "could be approved"
        raise RefusedError(
            RefusalCode.OVERRIDE_ENDED,
            f"Override {override.id} {was} until {show_moment(override.expires_at)}; "
            "propose another one.",
        )
