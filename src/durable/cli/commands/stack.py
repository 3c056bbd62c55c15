"""`durable up`, `durable down` and `durable status`: run the local stack."""

import os
import signal
from typing import Annotated, assert_never

import typer
from rich.markup import escape
from rich.table import Table

from durable.cli.input.options import AsJson, StateDir, flag, load_settings
from durable.cli.render.output import (
    Steps,
    conclude,
    error_object,
    print_findings,
    progress,
    results,
    say,
)
from durable.settings import Settings, variable
from durable.stack.detached import start_detached
from durable.stack.parts import PartStatus
from durable.stack.shutdown import StopRequest, stop_stack
from durable.stack.stack import start_stack
from durable.stack.status import StackStatus, stack_status
from durable.stack.supervisor import StackEvent, Supervisor

Detach = Annotated[
    bool, flag("--detach", help="Return once the stack is healthy, and leave it running.")
]


DatabasePerRegion = Annotated[
    str | None,
    typer.Option(
        metavar="REGIONS",
        help="Give each of these regions (us-west,eu-central) a PostgreSQL of its own, for good.",
    ),
]


def up(
    detach: Detach = False,
    database_per_region: DatabasePerRegion = None,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    if database_per_region is not None:
        # By the environment, which a detached supervisor reads as well.
        os.environ[variable("database_per_region")] = database_per_region
    settings = load_settings(state_dir)
    with Steps() as steps:
        if detach:
            start_detached(settings.state_dir, lambda event: show_event(steps, event))
            _print_running(settings, as_json)
        else:
            _run_here(settings, steps, as_json)


def down(state_dir: StateDir = None, as_json: AsJson = False) -> None:
    settings = load_settings(state_dir)
    stopped = stop_stack(settings.state_dir)
    sentence = f"Nothing is running in {settings.state_dir}."
    if stopped:
        sentence = f"Stopped {', '.join(stopped)}."
    content = {"state_dir": str(settings.state_dir.absolute()), "stopped": list(stopped)}
    conclude(as_json, content, say(sentence))


def status(state_dir: StateDir = None, as_json: AsJson = False) -> None:
    found = stack_status(load_settings(state_dir))
    wrong = None if found.healthy else found.sentence
    content = {**found.model_dump(mode="json"), **error_object("unhealthy", wrong)}
    conclude(as_json, content, lambda: _print_status(found))
    if not found.healthy:
        raise typer.Exit(1)


def _run_here(settings: Settings, steps: Steps, as_json: bool) -> None:
    stop = StopRequest()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop.make)

    def report(event: StackEvent) -> None:
        show_event(steps, event)
        if event.kind == "running":
            _print_running(settings, as_json)
            progress.print("Press Ctrl-C to stop.")

    Supervisor(settings.state_dir, report, stop).run(
        lambda supervisor: start_stack(supervisor, settings)
    )
    progress.print("Stopped.")


def show_event(steps: Steps, event: StackEvent) -> None:
    """Shows one step of starting the stack."""
    match event.kind:
        case "begin":
            steps.begin(event.text)
        case "done":
            steps.done(event.text, event.seconds)
        case "note":
            steps.note(event.text)
        case "running" | "failed":
            pass
        case _:
            assert_never(event.kind)


def _print_running(settings: Settings, as_json: bool) -> None:
    found = stack_status(settings)
    conclude(as_json, found, lambda: _print_status(found))


def _owner(part: PartStatus) -> str:
    if not part.ours:
        return "external"
    return "none" if part.pid is None else str(part.pid)


def _print_status(found: StackStatus) -> None:
    results.print(escape(found.detail))
    print_findings(found.findings)
    if found.parts:
        table = Table("Part", "Pid", "Address", "Health")
        for part in found.parts:
            health = "[green]healthy[/]" if part.healthy else f"[red]{escape(part.detail)}[/]"
            table.add_row(part.name, _owner(part), part.address, health)
        results.print(table)
    if found.temporal_ui_url:
        results.print(f"Temporal UI: {found.temporal_ui_url}")
