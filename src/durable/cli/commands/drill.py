"""`durable demo` and `durable drill`: rehearse on a stack, and check what was expected.

A drill on a stack that runs uses what runs there and leaves it as it was; otherwise it starts one
with the examples, and stops it afterwards. The demo always does that, and explains what it did.
"""

import os
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from durable.authority.reads.census import take_census
from durable.authority.reads.invariants import violations_everywhere
from durable.cli.commands.apply import apply_all
from durable.cli.commands.fleet import load_fleets, not_loaded, print_fleet
from durable.cli.commands.stack import show_event
from durable.cli.connections import with_authority, with_durable, with_reader
from durable.cli.input.manifests import load_manifest, load_workloads
from durable.cli.input.options import AsJson, flag, load_settings, path_option, state_dir_option
from durable.cli.render.explain import print_explanation
from durable.cli.render.following import ChangedLines
from durable.cli.render.output import (
    Steps,
    conclude,
    fail,
    print_lines,
    progress,
    results,
)
from durable.cli.render.reports import RecoveryView, print_recovery
from durable.cli.render.tables import print_rows
from durable.cli.render.workloads import AppliedWorkload, failure_of, print_applied
from durable.client import Durable
from durable.drills import demo as story
from durable.drills.demo import DemoReport, LostRegion
from durable.drills.drill import Drill, Expectation
from durable.drills.people import use_own_key
from durable.drills.registry import DRILLS
from durable.drills.rehearsal import rehearse
from durable.drills.world import World, wait_for_agents
from durable.model.fleet.manifest import Fleet
from durable.model.ids import RegionId
from durable.model.work.workload import WorkloadManifest
from durable.reports.recovery import summary_of_recovery
from durable.resources.resource import Filters
from durable.resources.table import WORKLOADS
from durable.stack.detached import start_detached
from durable.stack.shutdown import stop_stack
from durable.state_dir.record import StackError, is_running, read_record

OWN_STATE_DIR = Path(".durable/demo")
DRILL_STATE_DIR = Path(".durable/drill")
WAIT_SECONDS = 120.0

File = Annotated[Path, path_option("--file", "-f", help="The fleet to load.")]
Workloads = Annotated[Path, path_option("--workloads", "-w", help="The workloads to run.")]
OwnStateDir = Annotated[Path | None, state_dir_option(str(OWN_STATE_DIR))]
Keep = Annotated[bool, flag("--keep", help="Leave the stack running.")]


def demo(
    file: File = Path("examples/fleet.yaml"),
    workloads: Workloads = Path("examples/workloads"),
    keep: Keep = False,
    state_dir: OwnStateDir = None,
    as_json: AsJson = False,
) -> None:
    fleets, manifests = load_manifest(file, Fleet), load_workloads([workloads])
    directory = own_directory(state_dir, OWN_STATE_DIR, "The demo")
    with example_stack(fleets, directory, keep=keep):
        applied, report = with_durable(
            directory, lambda durable: _show(durable, manifests, directory)
        )
        _conclude_demo(manifests, applied, report, directory, keep=keep, as_json=as_json)


def own_directory(state_dir: Path | None, own: Path, who: str) -> Path:
    """The stack that was asked for, else one of its own; never servers of the user."""
    settings = load_settings(state_dir)
    if settings.database_url or settings.temporal_address:
        raise StackError(
            f"{who} changes what runs and must not do so on your servers: unset "
            "DURABLE_DATABASE_URL and DURABLE_TEMPORAL_ADDRESS first."
        )
    is_given = state_dir is not None or os.environ.get("DURABLE_STATE_DIR", "").strip()
    return settings.state_dir if is_given else own


@contextmanager
def example_stack(fleets: list[Fleet], directory: Path, *, keep: bool) -> Generator[None]:
    """A stack with a fleet whose nodes live; if all goes well and it is to be kept, it stays."""
    own = load_settings(directory)
    with Steps() as steps:
        start_detached(directory, lambda event: show_event(steps, event))
        kept = False
        try:
            if unreachable := load_fleets(fleets, directory):
                fail(not_loaded(unreachable))
            with_authority(directory, lambda authority: use_own_key(authority, own))
            agents = with_authority(directory, wait_for_agents)
            progress.print(f"[green]✓[/] Simulated agent: {agents}")
            yield
            kept = keep
        finally:
            if kept:
                progress.print(f"Stop it with: .venv/bin/durable down --state-dir {directory}")
            else:
                progress.print(f"[green]✓[/] Stopped {', '.join(stop_stack(directory))}")


async def apply_examples(
    durable: Durable, manifests: list[WorkloadManifest], reason: str
) -> list[AppliedWorkload]:
    return await apply_all(durable, manifests, WAIT_SECONDS, reason=reason)


async def _show(
    durable: Durable, manifests: list[WorkloadManifest], directory: Path
) -> tuple[list[AppliedWorkload], DemoReport]:
    applied = await apply_examples(durable, manifests, "durable demo")
    with RecoveryView() as view:
        world = World(durable, directory, progress.print, view.show)
        return applied, await story.run(world, manifests)


def _conclude_demo(
    manifests: list[WorkloadManifest],
    applied: list[AppliedWorkload],
    report: DemoReport,
    directory: Path,
    *,
    keep: bool,
    as_json: bool,
) -> None:
    census = with_authority(directory, take_census)
    violations = with_authority(directory, violations_everywhere)
    # The most important workload is what people would ask about first.
    first = max(manifests, key=lambda manifest: manifest.spec.priority)
    why = with_reader(directory, lambda reader: reader.explain(first.tenant, first.name))
    rows = with_reader(directory, lambda reader: reader.get(WORKLOADS))
    failure = "An invariant is violated: see `durable doctor`." if violations else None
    failure = failure or failure_of(applied) or report.failure
    content = {
        "fleet": census,
        "workloads": applied,
        **report.model_dump(mode="json"),
        "explanation": why,
        "invariants_hold": not violations,
    }

    def show() -> None:
        lost = report.lost_region
        results.print("The workloads at the beginning:\n")
        print_applied(applied)
        results.print("")
        if report.rollouts:
            _print_expectations(
                "A new version rolled out, and a bad one was rolled back by itself:",
                report.rollouts,
            )
        _print_expectations(
            "A zone was avoided for thirty seconds, and that ended by itself:", report.avoided_zone
        )
        _print_lost(lost)
        results.print(f"At the end, with {lost.region} still down:\n")
        print_fleet(directory)
        print_rows(WORKLOADS, rows, Filters())
        left = [share for share in why.regions if share.region != lost.region][:1]
        results.print(
            f"\nWhy {first.tenant}/{first.name} runs where it does, in a region that is left:\n"
        )
        print_explanation(why.model_copy(update={"regions": tuple(left)}))
        results.print("\nEvery invariant holds." if not violations else "")
        _print_next_steps(directory, applied, lost.region, keep)

    conclude(as_json, content, show, failure=failure)


def _print_expectations(title: str, expectations: Iterable[Expectation]) -> None:
    results.print(f"{title}\n")
    print_lines((f"{'✓' if each.met else '✗'} {each}" for each in expectations), indent=2)
    results.print("")


def _print_lost(lost: LostRegion) -> None:
    """What was expected and seen, what was moved and what waits, and the load of it."""
    title = f"{lost.region} was lost, and its work came back elsewhere:"
    _print_expectations(title, lost.expectations)
    if lost.recovery is not None:
        print_recovery(lost.recovery)
    load = lost.load
    results.print(
        f"Transactions of the authority in a second: {load.calm_per_second} before the loss, "
        f"{load.mean_per_second} during the recovery, {load.peak_per_second} at most.\n"
    )


def _print_next_steps(
    directory: Path, applied: list[AppliedWorkload], lost: RegionId, keep: bool
) -> None:
    record = read_record(directory)
    ui_url = None if record is None else record.temporal_ui_url
    name = applied[0].workload if applied else "TENANT/NAME"
    if keep:
        results.print(f"The stack is running. Temporal UI: {ui_url}. To look around:\n")
    else:
        results.print("To keep the stack running and look around:\n")
        results.print("  .venv/bin/durable demo --keep")
    for line in (
        f"get workloads --state-dir {directory}",
        f"plan -f examples/workloads --state-dir {directory}",
        f"scale {name} 3 --state-dir {directory}",
        f"explain {name} --state-dir {directory}",
        f"recovery show {lost} --state-dir {directory}",
        f"readiness --state-dir {directory}",
    ):
        results.print(f"  .venv/bin/durable {line}")


# ── drills ──────────────────────────────────────────────────────────────────────────────────────

_HELP = "\n\n".join(f"{drill.name}: {drill.sentence}" for drill in DRILLS.values())


def drill(
    name: Annotated[str, typer.Argument(metavar="|".join(DRILLS), help=_HELP)],
    file: File = Path("examples/fleet.yaml"),
    workloads: Workloads = Path("examples/workloads"),
    keep: Keep = False,
    state_dir: Annotated[Path | None, state_dir_option(str(DRILL_STATE_DIR))] = None,
    as_json: AsJson = False,
) -> None:
    chosen = DRILLS.get(name)
    if chosen is None:
        raise typer.BadParameter(
            f"there is no drill {name!r}; allowed: {', '.join(DRILLS)}", param_hint="NAME"
        )
    fleets, manifests = load_manifest(file, Fleet), load_workloads([workloads])
    directory = own_directory(state_dir, DRILL_STATE_DIR, "A drill")
    if is_running(directory):
        progress.print(f"Using the stack that runs in {escape(str(directory))}")
        expectations = _rehearse(chosen, directory, stays=True)
    else:
        with example_stack(fleets, directory, keep=keep):
            _apply(chosen, manifests, directory)
            expectations = _rehearse(chosen, directory, stays=keep)
    _conclude(chosen, expectations, as_json)


def _apply(drill: Drill, manifests: list[WorkloadManifest], directory: Path) -> None:
    reason = f"durable drill {drill.name}"
    applied = with_durable(directory, lambda durable: apply_examples(durable, manifests, reason))
    if (failure := failure_of(applied)) is not None:
        fail(failure)


def _rehearse(drill: Drill, directory: Path, *, stays: bool) -> list[Expectation]:
    lines = ChangedLines()

    async def use(durable: Durable) -> list[Expectation]:
        world = World(
            durable, directory, progress.print, lambda now: lines.show(summary_of_recovery(now))
        )
        return await rehearse(drill, world, stays=stays, show=_show_expectation)

    return with_durable(directory, use)


def _show_expectation(expectation: Expectation) -> None:
    mark = "[green]✓[/]" if expectation.met else "[red]✗[/]"
    progress.print(f"{mark} {escape(str(expectation))}")


def _conclude(drill: Drill, expectations: list[Expectation], as_json: bool) -> None:
    missed = [each for each in expectations if not each.met]
    failure = None
    if missed or not expectations:
        first = missed[0].what if missed else "nothing was rehearsed"
        failure = f"The drill {drill.name} failed: {first}; see {drill.runbook}."
    content = {"drill": drill.name, "expectations": expectations}
    conclude(as_json, content, lambda: None, failure=failure)
