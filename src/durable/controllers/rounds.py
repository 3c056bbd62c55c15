"""How a controller goes on: round after round, whatever one of them meets."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from durable.authority.db.errors import AuthorityError
from durable.model.refusal import RefusedError

log = logging.getLogger(__name__)

Failures = tuple[type[Exception], ...]


async def in_rounds(
    look: Callable[[], Awaitable[object]],
    seconds: float,
    what: str,
    failures: Failures = (AuthorityError, RefusedError),
) -> None:
    """Looks for ever, with so many seconds between; a round that fails this way is logged."""
    while True:
        try:
            await look()
        except failures as error:
            log.warning("%s: %s", what, error)
        await asyncio.sleep(seconds)
