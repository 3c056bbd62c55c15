"""Reports in a terminal: the same that the Temporal UI shows, as plain lines and tables."""

from collections.abc import Iterable
from typing import Self

from rich.live import Live
from rich.markup import escape
from rich.table import Table

from durable.cli.render.following import ChangedLines
from durable.cli.render.output import print_lines, progress
from durable.cli.render.tables import print_table
from durable.model.recovery.recoveries import RecoveryProgress
from durable.reports.recovery import describe_recovery
from durable.reports.report import Report, Section, plain
from durable.signals.recoveries import RecoveryStatus

REDRAWN_PER_SECOND = 4


def print_report(report: Report) -> None:
    """The summary, everything below it, and what can be sent now."""
    print_lines([report.summary or plain(report.title), *map(plain, report.lines)])
    print_sections(report.sections)
    if report.offer.for_now:
        print_lines([f"It accepts now: {', '.join(report.offer.for_now)}."])


def print_sections(sections: Iterable[Section]) -> None:
    for section in sections:
        if section.table:
            heads, *rows = section.table
            print_table(heads, rows, plain(section.title))
        else:
            print_lines([f"{plain(section.title)}:"])
            print_lines(map(plain, section.lines), indent=2)


# ── recoveries ──────────────────────────────────────────────────────────────────────────────────


def print_recovery(now: RecoveryProgress) -> None:
    """All that is known of one recovery."""
    print_report(_describe(now))


def _describe(now: RecoveryProgress) -> Report:
    key = now.recovery.key
    return describe_recovery(RecoveryStatus(region=key.region, epoch=key.epoch, progress=now))


class RecoveryView:
    """A recovery while it happens: on a terminal a table that is redrawn, in a pipe a line each."""

    def __init__(self) -> None:
        self._live = Live(console=progress, refresh_per_second=REDRAWN_PER_SECOND, transient=True)
        self._lines = ChangedLines()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, now: RecoveryProgress) -> None:
        report = _describe(now)
        if not progress.is_terminal:
            self._lines.show(report.summary)
            return
        table = Table(title=escape(report.summary), title_justify="left")
        heads, *rows = next((one.table for one in report.sections if one.table), ((),))
        for head in heads:
            table.add_column(head)
        for row in rows:
            table.add_row(*map(escape, row))
        self._live.start()
        self._live.update(table)
