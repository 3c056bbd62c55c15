"""What people have decided about one workload for a while, as of a snapshot's moment.

It goes into the request, which is recorded with the decision: a replay sees it as it was.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from durable.model.overrides.in_force import concerning
from durable.model.resources import NOTHING, Amounts, minus, plus
from durable.scheduling.snapshot.region import EmergencyDraw, Snapshot


def override_fields(snapshot: Snapshot, tenant: str, workload: str) -> dict[str, Any]:
    """The fields of a request that say which overrides it has to obey."""
    if not snapshot.overrides and not snapshot.draws:
        return {}
    now = datetime.fromtimestamp(snapshot.now, UTC)
    own = [draw for draw in snapshot.draws if draw.tenant == tenant]
    return {
        "overrides": concerning(snapshot.overrides, tenant, workload, now),
        "draws": tuple(
            minus(draw.amount, draw.used) for draw in own if draw.expires_at > snapshot.now
        ),
        "overdrawn": _used(draw for draw in own if draw.expires_at <= snapshot.now),
    }


def ends_after(snapshot: Snapshot, tenant: str, workload: str) -> list[float]:
    """In how many seconds each override of the workload ends."""
    now = datetime.fromtimestamp(snapshot.now, UTC)
    found = concerning(snapshot.overrides, tenant, workload, now)
    return [(one.expires_at - now).total_seconds() for one in found]


def _used(draws: Iterable[EmergencyDraw]) -> Amounts:
    total = NOTHING
    for draw in draws:
        total = plus(total, draw.used)
    return total
