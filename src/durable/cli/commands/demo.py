"""`durable demo`: runs the example workloads on a stack of its own, and explains one."""

import asyncio
import os
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from durable.agent.simulated.faults import ASKED_FOR
from durable.authority.db.connection import Databases
from durable.authority.reads.census import take_census
from durable.authority.reads.invariants import violations_everywhere
from durable.cli.commands.apply import apply_with
from durable.cli.commands.fleet import load_fleets, not_loaded, print_census
from durable.cli.commands.stack import show_event
from durable.cli.connections import with_authority, with_durable
from durable.cli.input.manifests import load_manifest, load_workloads
from durable.cli.input.options import AsJson, flag, load_settings, state_dir_option
from durable.cli.render.explain import print_explanation
from durable.cli.render.output import (
    Steps,
    error_object,
    fail,
    print_json,
    print_lines,
    progress,
    results,
)
from durable.cli.render.recoveries import print_recovery
from durable.cli.render.recovery_view import RecoveryView
from durable.cli.render.workloads import AppliedWorkload, failure_of, print_applied
from durable.client import Durable
from durable.drills.drill import Expectation
from durable.drills.override_expiry import avoid_a_zone
from durable.drills.shown_loss import LostRegion, show_loss
from durable.drills.world import World
from durable.explain.explain import explain
from durable.model.fleet.manifest import Fleet
from durable.model.ids import RegionId
from durable.model.work.workload import WorkloadManifest
from durable.stack.detached import start_detached
from durable.stack.shutdown import stop_stack
from durable.state_dir.record import StackError, read_record

OWN_STATE_DIR = Path(".durable/demo")
WAIT_SECONDS = 120.0
MAX_POLLS = 150
POLL_SECONDS = 0.2
AVOIDED_SECONDS = 30
# Of the examples: what changes while people watch.
ROLLED = "billing-api"

File = Annotated[Path, typer.Option("--file", "-f", help="The fleet to load.")]
Workloads = Annotated[Path, typer.Option("--workloads", "-w", help="The workloads to run.")]
OwnStateDir = Annotated[Path | None, state_dir_option(str(OWN_STATE_DIR))]
Keep = Annotated[bool, flag("--keep", help="Leave the stack running.")]


def demo(
    file: File = Path("examples/fleet.yaml"),
    workloads: Workloads = Path("examples/workloads"),
    keep: Keep = False,
    state_dir: OwnStateDir = None,
    as_json: AsJson = False,
) -> None:
    """Start a stack, run five workloads, roll one, avoid a zone, lose a region, check it all."""
    fleets = load_manifest(file, Fleet)
    manifests = load_workloads([workloads])
    settings = load_settings(state_dir)
    if settings.database_url or settings.temporal_address:
        raise StackError(
            "The demo loads an example fleet and must not load it into your servers: unset "
            "DURABLE_DATABASE_URL and DURABLE_TEMPORAL_ADDRESS first."
        )
    is_given = state_dir is not None or os.environ.get("DURABLE_STATE_DIR", "").strip()
    directory = settings.state_dir if is_given else OWN_STATE_DIR
    with Steps() as steps:
        start_detached(directory, lambda event: show_event(steps, event))
        kept = False
        try:
            _run_workloads(fleets, manifests, directory, keep, as_json)
            kept = keep
        finally:
            if kept:
                progress.print(f"Stop it with: .venv/bin/durable down --state-dir {directory}")
            else:
                stopped = stop_stack(directory)
                progress.print(f"[green]✓[/] Stopped {', '.join(stopped)}")


def _run_workloads(
    fleets: list[Fleet],
    manifests: list[WorkloadManifest],
    directory: Path,
    keep: bool,
    as_json: bool,
) -> None:
    start_examples(fleets, directory)
    applied, rolled, avoided, lost = with_durable(
        directory, lambda durable: _show_all(durable, manifests, directory)
    )
    census = with_authority(directory, take_census)
    violations = with_authority(directory, violations_everywhere)
    # The most important workload is what people would ask about first.
    first = max(manifests, key=lambda one: one.spec.priority)
    why = with_authority(directory, lambda databases: explain(databases, first.tenant, first.name))
    failure = "An invariant is violated: see `durable doctor`." if violations else None
    failure = failure or failure_of(applied) or _unexpected(rolled) or _missed(avoided)
    failure = failure or lost.failure
    if as_json:
        print_json(
            {
                "fleet": census.model_dump(mode="json"),
                "workloads": [row.model_dump(mode="json") for row in applied],
                "avoided_zone": [one.model_dump(mode="json") for one in avoided],
                "lost_region": lost.model_dump(mode="json"),
                "rollouts": [row.model_dump(mode="json") for row in rolled],
                "explanation": why.model_dump(mode="json"),
                "invariants_hold": not violations,
                **error_object("failed", failure),
            }
        )
    else:
        print_census(census)
        print_applied(applied)
        if rolled:
            results.print("A new version of it rolled out, and a bad one was undone by itself:\n")
            print_applied(rolled)
        results.print("A zone was avoided for thirty seconds, and that ended by itself:\n")
        print_lines((f"{'✓' if one.met else '✗'} {one}" for one in avoided), indent=2)
        results.print("")
        _print_lost(lost)
        left = [one for one in why.regions if one.region != lost.region][:1]
        results.print(
            f"Why {first.tenant}/{first.name} runs where it does, in a region that is left:\n"
        )
        print_explanation(why.model_copy(update={"regions": tuple(left)}))
        results.print("\nEvery invariant holds." if not violations else f"\n[red]{failure}[/]")
        _print_next_steps(directory, applied, lost.region, keep)
    if failure is not None:
        fail(failure)


async def _show_all(
    durable: Durable, manifests: list[WorkloadManifest], directory: Path
) -> tuple[list[AppliedWorkload], list[AppliedWorkload], list[Expectation], LostRegion]:
    """Everything serves; one rolls out while another leaves a zone; then a region is lost."""
    applied = await _apply(durable, manifests)
    first = max(manifests, key=lambda one: one.spec.priority)
    rolled, avoided = await asyncio.gather(
        _roll_out(durable, manifests), _avoid_zone(durable, first)
    )
    with RecoveryView() as view:
        world = World(durable, directory, progress.print, view.show)
        return applied, rolled, avoided, await show_loss(world)


async def _apply(durable: Durable, manifests: list[WorkloadManifest]) -> list[AppliedWorkload]:
    return await apply_with(durable, manifests, timeout_seconds=WAIT_SECONDS, reason="durable demo")


async def _roll_out(durable: Durable, manifests: list[WorkloadManifest]) -> list[AppliedWorkload]:
    """Rolls out a good version of a workload, then one that crashes, which has to be undone."""
    chosen = next((one for one in manifests if one.name == ROLLED), None)
    if chosen is None:
        return []
    rolled: list[AppliedWorkload] = []
    for environment in ({"VERSION": "2"}, {"VERSION": "3", ASKED_FOR: "crash"}):
        progress.print(f"Rolling out version {environment['VERSION']} of {chosen.name}")
        run = chosen.spec.run.model_copy(update={"environment": environment})
        spec = chosen.spec.model_copy(update={"run": run})
        rolled += await _apply(durable, [chosen.model_copy(update={"spec": spec})])
    return rolled


async def _avoid_zone(durable: Durable, manifest: WorkloadManifest) -> list[Expectation]:
    """Has a workload leave a zone for thirty seconds, as an operator would."""
    progress.print(f"Avoiding a zone for {AVOIDED_SECONDS} s, with what runs of {manifest.name}")
    lasts = timedelta(seconds=AVOIDED_SECONDS)
    return [one async for one in avoid_a_zone(durable, manifest.tenant, manifest.name, lasts)]


def start_examples(fleets: list[Fleet], directory: Path) -> None:
    """Loads the fleet into a stack that runs, and waits for its nodes."""
    if missing := load_fleets(fleets, directory):
        fail(not_loaded(missing))
    with_authority(directory, _wait_for_agents)


def _missed(avoided: list[Expectation]) -> str | None:
    missed = next((one for one in avoided if not one.met), None)
    return missed and f"Avoiding a zone did not go as it should: {missed}."


def _unexpected(rolled: list[AppliedWorkload]) -> str | None:
    """What was to be undone has to be, and nothing else."""
    undone = [row.undone is not None for row in rolled]
    if undone in ([], [False, True]):
        return None
    return f"A rollout of {ROLLED} did not end as it should: see `durable rollout history`."


async def _wait_for_agents(databases: Databases) -> None:
    """Nothing is placed on a node before an agent has taken its lease."""
    nodes = live = 0
    for _ in range(MAX_POLLS):
        pools = [pool for one in (await take_census(databases)).regions for pool in one.pools]
        nodes, live = sum(pool.nodes for pool in pools), sum(pool.live for pool in pools)
        if live >= nodes:
            break
        await asyncio.sleep(POLL_SECONDS)
    progress.print(f"[green]✓[/] Simulated agent: {live} of {nodes} nodes live")


def _print_lost(lost: LostRegion) -> None:
    """What was expected and seen, what was moved and what waits, and the load of it."""
    results.print(f"{lost.region} was lost, and its work came back elsewhere:\n")
    print_lines((f"{'✓' if one.met else '✗'} {one}" for one in lost.expectations), indent=2)
    if lost.recovery is not None:
        results.print("")
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
