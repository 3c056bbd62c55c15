"""One override in full, for people."""

from durable.cli.render.output import timestamp
from durable.model.states import OverrideState
from durable.resources.orders import OverrideRow


def lines_of(override: OverrideRow) -> list[str]:
    """Everything that is known of it, a line each."""
    shown = {
        "override": override.id,
        "kind": override.kind,
        "scope": str(override.scope),
        "state": override.state.value,
        "time left": override.left,
        "by": override.actor,
        "reason": override.reason,
        "ticket": override.ticket,
        "approved by": override.approver,
        "effect": override.so_far,
        "proposed": timestamp(override.proposed_at),
        **_ends(override),
        "obeyed in": ", ".join(override.obeyed_in),
    }
    return [f"{name}: {value}" for name, value in shown.items() if value]


def _ends(override: OverrideRow) -> dict[str, str]:
    if override.state is OverrideState.PROPOSED:
        return {"to be approved before": timestamp(override.expires_at)}
    if override.ended_at is not None:
        return {"ended": timestamp(override.ended_at)}
    latest = timestamp(override.latest_expiry)
    return {"ends": timestamp(override.expires_at), "may be extended until": latest}
