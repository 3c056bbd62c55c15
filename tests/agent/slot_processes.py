"""Every process that ran for a slot, on either side of a partition, and which lived at once."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.agent.commands import lives, number_in
from tests.agent.waiting import beside

SAMPLE_SECONDS = 0.005


class SlotProcesses:
    """Knows them by what each writes down before it does anything else."""

    def __init__(self, root: Path) -> None:
        self._root = root
        # The processes of slot 0 that lived at the same moment: one entry for each change.
        self.seen: list[list[int]] = []

    @property
    def script(self) -> str:
        return f"echo $$ >> {self._root}/slot-$DURABLE_SLOT; exec sleep 1000"

    def begun(self, slot: int) -> list[int]:
        file = self._file(slot)
        return [int(line) for line in file.read_text().split()] if file.exists() else []

    async def first(self, slot: int) -> int:
        return await number_in(self._file(slot))

    @asynccontextmanager
    async def sampled(self) -> AsyncGenerator[None]:
        """Looks at slot 0 every few milliseconds."""
        async with beside(self._keep_sampling()):
            yield

    async def _keep_sampling(self) -> None:
        while True:
            living = [pid for pid in self.begun(0) if lives(pid)]
            if self.seen[-1:] != [living]:
                self.seen.append(living)
            await asyncio.sleep(SAMPLE_SECONDS)

    def _file(self, slot: int) -> Path:
        return self._root / f"slot-{slot}"
