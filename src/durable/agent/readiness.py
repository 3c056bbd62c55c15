"""When a replica is ready, when it no longer is, and how often it is asked."""

import asyncio

from durable.agent.drivers import Report
from durable.agent.probes import Prober
from durable.model.running import Readiness
from durable.model.states import ObservedState

FIRST_PAUSE_SECONDS = 0.1


def tell_serving(report: Report, token: int, evidence: str) -> None:
    """Nothing stands between ready and serving on a node: whoever is ready may be found."""
    report(token, ObservedState.READY, evidence)
    report(token, ObservedState.SERVING, evidence)


async def keep_asking(
    prober: Prober, readiness: Readiness, token: int, report: Report, *, is_new: bool
) -> None:
    """Asks until cancelled, and tells every change.

    Of an adopted replica nothing is told before its first answer: what it was is not spoilt by a
    guess. A new one has been told to run.
    """
    state = ObservedState.RUNNING if is_new else None
    period_seconds = readiness.period.total_seconds()
    # Until it is ready for the first time it is asked more often, ever more slowly.
    pause_seconds = min(FIRST_PAUSE_SECONDS, period_seconds)
    while True:
        refusal = await prober.ask()
        if refusal is None and state is not ObservedState.SERVING:
            tell_serving(report, token, "its readiness probe succeeded")
            state = ObservedState.SERVING
        elif refusal is not None and state is not ObservedState.RUNNING:
            report(token, ObservedState.RUNNING, refusal)
            state = ObservedState.RUNNING
        pause_seconds = (
            period_seconds if refusal is None else min(pause_seconds * 2, period_seconds)
        )
        await asyncio.sleep(pause_seconds)
