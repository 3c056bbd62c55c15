"""Takes simulated nodes away by the faults file of the stack's agent, and gives them back."""

import json
from pathlib import Path
from types import TracebackType
from typing import Self

from durable.agent.simulated.faults import FaultKind, FaultsError, InjectedFault, read_faults
from durable.stack.control_plane import FAULTS
from durable.state_dir.record import StackError


class BrokenNodes:
    """Nodes that are lost for as long as a drill wants; however it ends, none stays broken.

    Faults that were in the file before a drill are in it afterwards.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / FAULTS
        try:
            self._before = read_faults(self._path)
        except FaultsError as error:
            raise StackError(f"The faults of this stack cannot be read: {error}.") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.give_back()

    def lose(self, *, region: str = "*", zone: str = "*", kind: FaultKind = FaultKind.LOST) -> None:
        """Takes away every simulated node of a region or of a zone, or cuts them off."""
        lost = InjectedFault(kind=kind, region=region, zone=zone)
        self._write((*self._before, lost))

    def give_back(self) -> None:
        """Gives back whatever was taken away."""
        self._write(self._before)

    def _write(self, faults: tuple[InjectedFault, ...]) -> None:
        """Replaced as a whole: the agent never reads half of it."""
        new = self._path.with_suffix(".new")
        content = [fault.model_dump(mode="json", exclude_none=True) for fault in faults]
        new.write_text(json.dumps(content))
        new.replace(self._path)
