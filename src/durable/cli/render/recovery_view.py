"""A recovery while it happens: one row for each workload, redrawn as it comes back."""

from types import TracebackType
from typing import Self

from rich.live import Live
from rich.markup import escape
from rich.table import Table

from durable.cli.render.following import ChangedLines
from durable.cli.render.output import progress
from durable.model.recovery.recoveries import RecoveryProgress, WorkloadMove
from durable.reports.recovery import summary_of_recovery

REDRAWN_PER_SECOND = 4


class RecoveryView:
    """On a terminal a table that is redrawn; in a pipe one line for each change."""

    def __init__(self) -> None:
        self._live = Live(console=progress, refresh_per_second=REDRAWN_PER_SECOND, transient=True)
        self._lines = ChangedLines()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.stop()

    def show(self, now: RecoveryProgress) -> None:
        if progress.is_terminal:
            self._live.start()
            self._live.update(_table(now))
        else:
            self._lines.show(summary_of_recovery(now))


def _table(now: RecoveryProgress) -> Table:
    table = Table(title=escape(summary_of_recovery(now)), title_justify="left")
    for head in ("Workload", "Priority", "Moved", "Serving", "Recovered after", "Waits for"):
        table.add_column(head)
    for move in now.moves:
        table.add_row(*map(escape, _cells(move, now)))
    return table


def _cells(move: WorkloadMove, now: RecoveryProgress) -> tuple[str, ...]:
    seconds = move.seconds_to_recover(now.recovery.lost_at)
    return (
        f"{move.tenant}/{move.workload}",
        str(move.priority),
        "no" if move.moved_at is None else f"{move.placed} of {len(move.lost)}",
        f"{move.serving} of {len(move.lost)}",
        "" if seconds is None else f"{seconds:.1f} s",
        move.waits,
    )
