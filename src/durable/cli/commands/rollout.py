"""`durable rollout`: follow a rollout, read its history, and steer it."""

from typing import TYPE_CHECKING, Annotated

import typer
import yaml

from durable.cli.commands.diff import MAX_GENERATION
from durable.cli.commands.get import list_resource
from durable.cli.connections import with_durable, with_reader
from durable.cli.input.options import (
    AsJson,
    StateDir,
    Timeout,
    WorkloadArgument,
    parse_workload,
)
from durable.cli.render.output import error_object, fail, print_json, results
from durable.cli.render.rollout import RolloutReport, print_rollout
from durable.cli.workload_verbs import workload_command
from durable.model.ids import TenantId, WorkloadName
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.work.workload import WorkloadKind, WorkloadManifest, WorkloadSpec
from durable.resources.table import GENERATIONS

if TYPE_CHECKING:
    from durable.client import Durable

app = typer.Typer(
    no_args_is_help=True, help="Follow, pause, resume, promote or undo a workload's rollout."
)


@app.command()
def status(
    name: WorkloadArgument,
    watch: Annotated[
        bool, typer.Option("--watch/--no-watch", help="Follow it until it is done.")
    ] = True,
    timeout: Timeout = 3_600.0,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Show how far a rollout has come; exit with 1 if it was undone."""
    tenant, workload = parse_workload(name)

    async def follow(durable: "Durable") -> RolloutReport:
        found = await durable.status(tenant, workload)
        if found.spec.kind is WorkloadKind.JOB:
            raise RefusedError(
                RefusalCode.WRONG_STATE,
                f"{name} is a job, and a job does not roll out; see `durable get workloads`.",
            )
        if watch:
            return await _follow(durable, tenant, workload, timeout)
        return RolloutReport.of(found, await durable.generations(tenant, workload))

    report = with_durable(state_dir, follow)
    if as_json:
        content = report.model_dump(mode="json")
        print_json({**content, **error_object("rolled_back", report.undone)})
    else:
        print_rollout(report)
    if report.undone is not None:
        fail(f"{name}: {report.undone}")


async def _follow(
    durable: "Durable", tenant: TenantId, workload: WorkloadName, within_seconds: float
) -> RolloutReport:
    # Imported here: this loads Temporal, which `history` does not need.
    from durable.cli.render.progress import WaitTarget
    from durable.cli.render.waiting import wait_for_all

    [last] = await wait_for_all(durable, [WaitTarget(tenant, workload, "serving")], within_seconds)
    return RolloutReport.of(last, await durable.generations(tenant, workload))


@app.command()
def history(
    name: WorkloadArgument,
    generation: Annotated[
        int | None,
        typer.Option(min=1, max=MAX_GENERATION, help="Print the manifest of this one."),
    ] = None,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """List the last generations: who wanted each, why, and what became of it."""
    if generation is None:
        list_resource(GENERATIONS, state_dir, as_json, workload=name)
    else:
        _print_generation(name, generation, state_dir, as_json)


def _print_generation(name: str, generation: int, state_dir: StateDir, as_json: bool) -> None:
    """The manifest as it could be applied again."""
    tenant, workload = parse_workload(name)

    record = with_reader(state_dir, lambda reader: reader.generation(tenant, workload, generation))
    if as_json:
        print_json(record)
        return
    manifest = WorkloadManifest(
        tenant=tenant, name=workload, spec=WorkloadSpec.read(record.spec)
    ).model_dump(mode="json", exclude_defaults=True)
    results.print(yaml.safe_dump(manifest, sort_keys=False).rstrip(), markup=False)


# ── requests ────────────────────────────────────────────────────────────────────────────────────

for _command in (
    workload_command(
        "rollout pause", "pause", "Replace nothing more of a rollout until somebody resumes it."
    ),
    workload_command("rollout resume", "resume", "Go on with a rollout that was paused."),
    workload_command("rollout promote", "promote", "Go on past a pause point of the spec."),
    workload_command(
        "rollout undo",
        "rollback",
        "Go back to the last generation that was good, or to another one that was.",
        is_followed=True,
    ),
):
    _command.add_to(app)
