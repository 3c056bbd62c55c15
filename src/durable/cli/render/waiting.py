"""What somebody is told who no longer waits for what was sent."""

from collections.abc import Generator
from contextlib import contextmanager

from durable.cli.render.output import progress


@contextmanager
def told_when_interrupted() -> Generator[None]:
    """Says that nothing was undone by the interrupt, and where to look."""
    try:
        yield
    except KeyboardInterrupt:
        progress.print("What was sent goes on by itself; look with `durable get workloads`.")
        raise
