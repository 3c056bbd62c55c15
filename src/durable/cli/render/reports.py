"""Reports in a terminal: the same that the Temporal UI shows, as plain lines and tables."""

from collections.abc import Iterable

from durable.cli.render.output import print_lines
from durable.cli.render.tables import print_table
from durable.model.recovery.recoveries import RecoveryProgress
from durable.reports.recovery import describe_recovery
from durable.reports.report import Report, Section, plain
from durable.signals.recoveries import RecoveryStatus


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


def print_recovery(now: RecoveryProgress) -> None:
    """All that is known of one recovery."""
    key = now.recovery.key
    status = RecoveryStatus(region=key.region, epoch=key.epoch, progress=now)
    print_report(describe_recovery(status))
