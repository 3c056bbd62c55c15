"""The `durable` command; only the subcommand that was named is imported."""

import gc
import os
import sys
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from typing import Annotated

import typer


@dataclass(frozen=True)
class Subcommand:
    """Where a subcommand is defined, and its line in `durable --help`."""

    module: str
    # The Typer app of a group of commands, or the function of a single one.
    attribute: str
    # Its help, here and with the command.
    sentence: str

    def add_to(self, app: typer.Typer, name: str) -> None:
        command = getattr(import_module(f"durable.cli.{self.module}"), self.attribute)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name, help=self.sentence)
        else:
            app.command(name, help=self.sentence)(command)


# Where each is below `durable.cli`, and what it is for.
SUBCOMMANDS = {
    name: Subcommand(module, attribute, sentence)
    for name, module, attribute, sentence in (
        ("up", "commands.stack", "up",
         "Start Temporal, PostgreSQL, workers and simulated nodes, and keep them running."),
        ("down", "commands.stack", "down",
         "Stop the stack and wait until every process has exited."),
        ("status", "commands.stack", "status",
         "Show what is wrong with the stack; exit with 0 if a placement would go through now."),
        ("demo", "commands.drill", "demo",
         "Start a stack, run five workloads, roll one, avoid a zone, lose a region, check it all."),
        ("migrate", "commands.maintenance", "migrate",
         "Migrate every database to this release's schema; safe to repeat."),
        ("doctor", "commands.maintenance", "doctor",
         "Check every invariant, and that work could go on; exit with 1 if anything is wrong."),
        ("apply", "commands.apply", "apply",
         "Create or change workloads, and wait until they serve or complete."),
        ("scale", "commands.workloads", "scale", "Change the replica count of a workload."),
        ("delete", "commands.workloads", "delete",
         "Delete a workload: stop its replicas and release what they hold."),
        ("rollout", "commands.workloads", "app",
         "Follow, pause, resume, promote or roll back a workload's rollout."),
        ("replace", "commands.workloads", "replace",
         "Replace slots of a workload, each up before another is stopped."),
        ("diff", "commands.explain", "diff",
         "Show what differs between two generations of a workload."),
        ("plan", "commands.explain", "plan",
         "Show what an apply would do, without changing anything."),
        ("explain", "commands.explain", "explain_workload",
         "Explain where a workload runs, how that was decided, and what happens next."),
        ("queue", "commands.get", "queue", "Show who waits for a node, in order, and what for."),
        ("readiness", "commands.explain", "readiness",
         "Show what the loss of a region would mean now; exit 1 if the objective would be missed."),
        ("logs", "commands.logs", "logs",
         "Print the logs of a replica; simulated replicas have none."),
        ("send", "commands.send", "send",
         "Send an operator's message to placements, and print what each answers."),
        ("drain", "commands.nodes", "drain",
         "Cordon nodes and replace what runs there, each replica up elsewhere before it "
         "is stopped."),
        ("override", "commands.override", "app",
         "Propose, approve, extend or end an override: avoid a zone, hold a workload, and others."),
        ("drill", "commands.drill", "drill",
         "Rehearse what a runbook says, on the stack that runs here or on one of its own."),
        ("cordon", "commands.nodes", "cordon", "Keep new work off nodes; what runs there stays."),
        ("uncordon", "commands.nodes", "uncordon",
         "Let cordoned nodes take new work again; refused while they are drained."),
        ("maintenance", "commands.nodes", "maintenance",
         "Mark a region: its nodes will be silent for a while, which is not its loss."),
        ("reconcile", "commands.maintenance", "reconcile",
         "Start every workload and placement that the authority knows and that does not run."),
        ("restored", "commands.maintenance", "restored",
         "Say that a database was restored from an older copy, so that it goes on."),
        ("worker", "processes.worker", "worker",
         "Run workflows and activities; on SIGTERM or SIGINT, finish what has begun and exit."),
        ("agent", "processes.agent", "agent",
         "Run an agent: start and stop the replicas bound to its nodes, and report their state."),
        ("get", "commands.get", "app",
         "List workloads, placements, decisions, nodes, drains, overrides and others."),
        ("fleet", "commands.fleet", "app", "Load and show regions, nodes and tenants."),
        ("policy", "commands.policy", "app",
         "Publish, compare, promote and roll back scheduler policies."),
        ("recovery", "commands.recovery", "app",
         "Declare, show, confirm, veto and end the loss of a region."),
        ("operator", "commands.operator", "app",
         "Add and remove operators, and change their rights and keys."),
        ("sign", "commands.send", "sign",
         "Print a message's payload signed with your key, to paste into the Temporal UI."),
        ("audit", "commands.audit", "app", "Show and verify the hash-chained audit log."),
    )
}  # fmt: skip


def app_for(arguments: list[str]) -> typer.Typer:
    """The `durable` command, with only the subcommand that the arguments name loaded."""
    # The options before a subcommand take no values, so the first plain word is its name.
    requested = next((word for word in arguments if not word.startswith("-")), None)
    app = typer.Typer(no_args_is_help=True, add_completion=False, callback=_main)
    for name, subcommand in SUBCOMMANDS.items():
        if name == requested:
            subcommand.add_to(app, name)
        else:
            app.command(name, help=subcommand.sentence)(_not_loaded)
    return app


def _not_loaded() -> None:
    raise AssertionError("this subcommand was not loaded")


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"durable {version('durable')}")
        raise typer.Exit


def _main(
    show_version: Annotated[
        bool,
        typer.Option(
            "--version",
            metavar="",
            callback=_print_version,
            is_eager=True,
            help="Print the version.",
        ),
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", metavar="", help="Print the traceback of an error.")
    ] = False,
) -> None:
    """A scheduler control plane whose every placement is a durable execution."""
    if debug:
        os.environ["DURABLE_DEBUG"] = "1"


# Everything else is imported inside, where an interrupt ends in a sentence, not a traceback.


def execute(arguments: list[str]) -> int:
    """Runs one command and returns its exit code; every error ends as a sentence."""
    as_json = "--json" in arguments
    try:
        from durable.cli.main import app_for

        app_for(arguments)(arguments)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
        if code == 0:
            return code
        from durable.cli.errors import end_exit

        return end_exit(end, code, as_json)
    except KeyboardInterrupt:
        from durable.cli.errors import end_interrupt

        return end_interrupt(as_json)
    except Exception as error:
        from durable.cli.errors import end_error

        return end_error(error, as_json)
    return 0


def run() -> None:
    """The entry point."""
    # What is imported is not garbage: at the interpreter's own pace, to look for some is a sixth of
    # the time that a command takes to begin.
    gc.set_threshold(50_000, 20, 50)
    code = execute(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    # The Temporal SDK's threads may abort an orderly interpreter exit.
    os._exit(code)
