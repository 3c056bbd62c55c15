"""Values kept for a few seconds, and read once for everyone who needs them at the same time."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class TtlCache(Generic[K, V]):
    """Values by their key; a read that fails is not remembered."""

    def __init__(self, read: Callable[[K], Awaitable[V]], *, seconds: float) -> None:
        self._read, self._seconds = read, seconds
        self._known: dict[K, tuple[float, V]] = {}
        self._locks: dict[K, asyncio.Lock] = {}

    async def get(self, key: K, *, fresh: bool = False) -> V:
        """The value; with `fresh`, one whose read began after this call."""
        oldest = time.monotonic() - (0.0 if fresh else self._seconds)
        async with self._locks.setdefault(key, asyncio.Lock()):
            known = self._known.get(key)
            if known is not None and known[0] >= oldest:
                return known[1]
            began = time.monotonic()
            try:
                value = await self._read(key)
            except BaseException:
                self._locks.pop(key, None)  # or the locks of unknown names would pile up
                raise
            self._known[key] = (began, value)
            return value
