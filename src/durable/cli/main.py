"""The `durable` command: the list of its subcommands, and how it ends."""

import os
import sys
from importlib.metadata import version
from typing import Annotated

import typer

from durable.authority.errors import AuthorityError
from durable.cli import (
    agent,
    audit,
    database,
    demo,
    explained,
    fleet,
    listing,
    planned,
    promises,
    queued,
    replica_logs,
    sending,
    stack,
    worker,
    workloads,
)
from durable.cli.manifest import ManifestError
from durable.cli.output import print_error, print_traceback, print_unknown_error
from durable.model.refusal import RefusedError
from durable.settings import SettingsError
from durable.stack_record import StackError

REFUSED = 1
USAGE = 2

app = typer.Typer(no_args_is_help=True, add_completion=False)
app.command("up")(stack.up)
app.command("down")(stack.down)
app.command("status")(stack.status)
app.command("demo")(demo.demo)
app.command("migrate")(database.migrate)
app.command("promises")(promises.promises)
app.command("apply")(workloads.apply)
app.command("scale")(workloads.scale)
app.command("delete")(workloads.delete)
app.command("plan")(planned.plan)
app.command("explain")(explained.explain_workload)
app.command("queue")(queued.queue)
app.command("logs")(replica_logs.logs)
app.command("send")(sending.send)
app.command("worker")(worker.worker)
app.command("agent")(agent.agent)
app.add_typer(listing.app, name="get")
app.add_typer(fleet.app, name="fleet")
app.add_typer(audit.app, name="audit")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"durable {version('durable')}")
        raise typer.Exit


@app.callback()
def main(
    show_version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks of errors.")] = False,
) -> None:
    """A scheduler control plane whose every placement is a durable execution."""
    if debug:
        os.environ["DURABLE_DEBUG"] = "1"


def execute(arguments: list[str]) -> int:
    """Run one command and return its exit code; every error ends as a sentence."""
    try:
        app(arguments)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    except (SettingsError, ManifestError) as error:
        return _end(error, USAGE)
    except (StackError, AuthorityError, RefusedError) as error:
        return _end(error, REFUSED)
    except Exception as error:
        print_unknown_error(error)
        _trace_if_wanted()
        return REFUSED
    return 0


def run() -> None:
    """The entry point."""
    code = execute(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    # The Temporal SDK's threads may abort an orderly interpreter exit.
    os._exit(code)


def _end(error: Exception, code: int) -> int:
    print_error(str(error))
    _trace_if_wanted()
    return code


def _trace_if_wanted() -> None:
    if os.environ.get("DURABLE_DEBUG", "").lower() in ("1", "true", "yes", "on"):
        print_traceback()
