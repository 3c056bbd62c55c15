"""What is wrong, as people read it: one sentence each, above everything else."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.markup import escape

from durable.cli.render.output import results

if TYPE_CHECKING:
    from durable.health.findings import HealthFinding


def print_findings(found: "Sequence[HealthFinding]") -> None:
    for one in found:
        results.print(f"[red]✗[/] {escape(str(one))}")
