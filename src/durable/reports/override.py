"""An override for people: what it does, for how long, and who may do what next."""

import json
from datetime import datetime, timedelta

from durable.model.operators.rights import Verb
from durable.model.overrides.override import Override
from durable.model.states import OverrideState
from durable.reports.report import SENTENCE_SHOWN, Offer, Report, line, listed, moment, waits
from durable.signals.names import OVERRIDE, override_id
from durable.signals.overrides import OverrideStatus
from durable.validation.quantities import show_roughly

_FOR_NOW = {
    OverrideState.PROPOSED: ("approve", "reject", "revoke"),
    OverrideState.ACTIVE: ("extend", "revoke"),
}


def describe_override(status: OverrideStatus, now: datetime, so_far: str = "") -> Report:
    """`so_far` is what it has done, where that is known."""
    override = status.override
    if override is None:
        return Report(
            title="Override",
            lines=("Nothing has been proposed yet: send `propose`.", *waits(status.unreachable)),
            sections=(),
            offer=Offer(OVERRIDE, ("propose",), signed_to="override/NAME"),
            status=status,
        )
    obeyed = [f"{region}: has it" for region in status.regions]
    unreachable = status.unreachable_regions.items()
    others = [f"{region}: **unreachable**: {line(why)}" for region, why in unreachable]
    verb = Verb(override.of_kind.verb)
    own = {"propose": verb, "revoke": verb, "extend": verb}
    name = override_id(override.id)
    return Report(
        title=f"{override.kind}: {line(str(override.scope))}",
        summary=f"{name}: {override.kind}, {override.scope}",
        lines=(
            *_lines(override, now),
            *([f"So far: {line(so_far, SENTENCE_SHOWN)}"] if so_far else []),
            *waits(status.unreachable),
        ),
        sections=listed("Regions", [*obeyed, *others]),
        offer=Offer(OVERRIDE, _FOR_NOW.get(override.state, ()), signed_to=name, verbs=own),
        status=status,
    )


def _lines(override: Override, now: datetime) -> list[str]:
    ticket = f" ({line(override.ticket)})" if override.ticket else ""
    lines = [
        f"**{override.state}**; {_next(override, now)}",
        f"By {line(f'{override.actor}: {override.reason}')}{ticket}",
        f"Effect: {line(override.of_kind.sentence)}",
    ]
    if override.effect:
        # As code, so that its quotes stay what they are.
        lines.append(f"With: `{json.dumps(override.effect).replace('`', '')}`")
    if override.approver is not None:
        lines.append(f"Approved by {line(override.approver)}")
    if override.outcome:
        lines.append(f"Ended {moment(override.ended_at)}: {line(override.outcome)}")
    return lines


def _next(override: Override, now: datetime) -> str:
    """Who acts next, and until when."""
    until = f"{moment(override.expires_at)} ({_left(override, now)})"
    if override.state is OverrideState.PROPOSED:
        return f"a person other than {override.actor} has to `approve` it before {until}"
    if override.state is OverrideState.ACTIVE:
        latest = moment(override.latest_expiry)
        who = "any person with the right" if override.of_kind.extends_alone else "a second person"
        return f"ends by itself at {until}; {who} may `extend` it up to {latest}"
    return "nothing is left to do"


def _left(override: Override, now: datetime) -> str:
    left = override.expires_at - now
    if left < timedelta(seconds=1):
        return "now"
    return f"{show_roughly(left)} left when this was written"
