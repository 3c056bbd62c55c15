"""What several drills expect: a refusal, what the audit tells, and that every invariant holds."""

from collections import Counter
from collections.abc import Awaitable, Iterable

from durable.authority.audit.events import read_events
from durable.authority.reads.invariants import violations_everywhere
from durable.client import Durable
from durable.drills.drill import Expectation, come_true
from durable.model.refusal import RefusalCode, RefusedError

# A refusal is in the audit a moment after it was answered.
AUDIT_SECONDS = 30.0
EVENTS_READ = 1_000


async def is_refused(what: str, code: RefusalCode, asked: Awaitable[object]) -> Expectation:
    """Whether it is refused, and for this reason."""
    try:
        await asked
    except RefusedError as error:
        refusal = error.refusal
        met = refusal.code is code
        return Expectation(what=what, met=met, seen=refusal.code if met else refusal.sentence)
    return Expectation(what=what, met=False, seen="it was accepted")


async def audit_tells(
    durable: Durable,
    target: str,
    actions: Iterable[str],
    what: str = "the audit tells all of it",
) -> Expectation:
    """Whether it has all of these about the target, each as often as it is named."""

    wanted = Counter(actions)

    async def told() -> list[str]:
        events, _ = await read_events(durable.databases, target=target, last=EVENTS_READ)
        return [one.action for one in events]

    async def is_told() -> bool:
        return wanted <= Counter(await told())

    met = await come_true(is_told, AUDIT_SECONDS)
    return Expectation(what=what, met=met, seen=", ".join(await told()))


async def invariants_hold(durable: Durable) -> Expectation:
    broken = await violations_everywhere(durable.databases)
    seen = ", ".join(map(str, broken))
    return Expectation(what="every invariant holds", met=not broken, seen=seen)
