"""`durable scale`, `delete`, `replace` and `rollout`: change one workload, and follow it."""

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer
import yaml
from rich.markup import escape

from durable.cli.commands.explain import MAX_GENERATION
from durable.cli.commands.get import list_resource
from durable.cli.connections import with_durable, with_reader
from durable.cli.input.options import (
    AsJson,
    StateDir,
    Timeout,
    WorkloadArgument,
    parse_workload,
)
from durable.cli.render.output import conclude, print_lines, progress, results, say
from durable.cli.render.reports import print_report
from durable.cli.verbs import MessageCommand, VerbInput, message
from durable.explain.rollback import why_newest_rolled_back
from durable.model.ids import TenantId, WorkloadName
from durable.model.refusal import RefusalCode, RefusedError
from durable.model.work.workload import (
    MAX_REPLICAS,
    WorkloadKind,
    WorkloadManifest,
    WorkloadSpec,
)
from durable.reports.workload import describe_workload
from durable.resources.table import GENERATIONS
from durable.signals.names import WORKLOAD
from durable.signals.status import WorkloadStatus

if TYPE_CHECKING:
    from durable.client import Durable, Until
    from durable.model.work.workload import AdmittedWorkload

# How far a rollout has come, and why the newest generation is not what is wanted.
RolloutView = tuple[WorkloadStatus, str | None]


def _parse(name: str, *_: object) -> tuple[TenantId, WorkloadName]:
    return parse_workload(name)


def _command(path: str, name: str, **own: Any) -> MessageCommand:
    """The command of one row; what is its own replaces the usual."""

    async def send(durable: "Durable", given: VerbInput) -> Any:
        return await durable.send(given.target, name, **given.fields)

    usual: dict[str, Any] = {
        "target": {"name": (WorkloadArgument,)},
        "send": send,
        "conclude": _conclude_answer,
    }
    return MessageCommand(path=path, message=message(WORKLOAD, name), parse=_parse, **usual | own)


async def _wait(
    durable: "Durable", given: VerbInput, answer: Any = None, until: "Until" = "serving"
) -> WorkloadStatus | None:
    """The last status of the workload; None if it is not waited for."""
    if given.timeout_seconds is None:
        return None
    # Imported here: this loads Temporal, which `rollout history` does not need.
    from durable.cli.render.progress import WaitTarget
    from durable.cli.render.waiting import wait_for_all

    tenant, name = given.target
    target = WaitTarget(tenant, name, until)
    [last] = await wait_for_all(durable, [target], given.timeout_seconds)
    return last


async def _view(durable: "Durable", status: WorkloadStatus) -> RolloutView:
    records = await durable.generations(status.tenant, status.workload)
    return status, why_newest_rolled_back(records, status.generation)


def _content(view: RolloutView) -> dict[str, Any]:
    status, rolled_back = view
    own = {"is_rolling": status.is_rolling, "rolled_back": rolled_back}
    name = f"{status.tenant}/{status.workload}"
    return {**status.model_dump(mode="json"), "workload": name, **own}


def _print(view: RolloutView) -> None:
    status, rolled_back = view
    print_lines([] if rolled_back is None else [rolled_back])
    print_report(describe_workload(status))


def _conclude_answer(given: VerbInput, answer: str, view: RolloutView | None) -> None:
    name = "/".join(given.target)
    rollout = {} if view is None else {"rollout": _content(view)}
    conclude(
        given.as_json,
        {"workload": name, "answer": answer, **rollout},
        say(f"{name}: {answer}") if view is None else lambda: _print(view),
    )


# ── scale and delete ────────────────────────────────────────────────────────────────────────────


def _conclude_scale(
    given: VerbInput, admitted: "AdmittedWorkload", status: WorkloadStatus | None
) -> None:
    from durable.cli.render.workloads import AppliedWorkload, print_applied

    row = AppliedWorkload.of("/".join(given.target), admitted).after(status)
    conclude(given.as_json, row, lambda: print_applied([row]))


async def _delete(durable: "Durable", given: VerbInput) -> None:
    await durable.send(given.target, "delete", **given.fields)
    now = await durable.admitted(*given.target)
    if now is not None and not (now.deleting or now.deleted):
        raise RefusedError(
            RefusalCode.CREATED_SINCE,
            f"Request {given.fields['request_id']} was already answered: it deleted an earlier "
            f"{'/'.join(given.target)}, which was created again since. To delete it, send another "
            "--request-id.",
        )


def _conclude_delete(given: VerbInput, _: None, last: WorkloadStatus | None) -> None:
    name, is_deleted = "/".join(given.target), last is not None
    outcome = "deleted" if is_deleted else "is being deleted"
    content = {"workload": name, "deleted": is_deleted}
    conclude(given.as_json, content, say(f"{name} {outcome}."))


scale = _command(
    "scale",
    "scale",
    target={
        "name": (WorkloadArgument,),
        "replicas": (
            Annotated[
                int,
                typer.Argument(metavar="REPLICAS", min=0, max=MAX_REPLICAS, help="The new count."),
            ],
        ),
    },
    follow=_wait,
    conclude=_conclude_scale,
    follows_seconds=300.0,
).function()

delete = _command(
    "delete",
    "delete",
    send=_delete,
    follow=partial(_wait, until="deleted"),
    conclude=_conclude_delete,
    follows_seconds=300.0,
).function()


# ── rollouts ────────────────────────────────────────────────────────────────────────────────────

app = typer.Typer(no_args_is_help=True)


async def _follow_rollout(durable: "Durable", given: VerbInput, answer: str) -> RolloutView | None:
    if given.timeout_seconds is not None:
        progress.print(escape(answer))
    status = await _wait(durable, given)
    return None if status is None else await _view(durable, status)


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
    """Show how far a rollout has come; exit with 1 if it was rolled back."""
    given = VerbInput(parse_workload(name), {}, {}, timeout if watch else None, as_json)

    async def follow(durable: "Durable") -> RolloutView:
        now = await durable.status(*given.target)
        if now.spec.kind is WorkloadKind.JOB:
            raise RefusedError(
                RefusalCode.WRONG_STATE,
                f"{name} is a job, and a job does not roll out; see `durable get workloads`.",
            )
        return await _view(durable, await _wait(durable, given) or now)

    view = with_durable(state_dir, follow)
    failure = None if view[1] is None else f"{name}: {view[1]}"
    conclude(as_json, _content(view), lambda: _print(view), failure=failure, code="rolled_back")


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
        return
    tenant, workload = parse_workload(name)
    record = with_reader(state_dir, lambda reader: reader.generation(tenant, workload, generation))

    def show() -> None:
        """The manifest as it could be applied again."""
        spec = WorkloadSpec.read(record.spec)
        manifest = WorkloadManifest(tenant=tenant, name=workload, spec=spec)
        content = manifest.model_dump(mode="json", exclude_defaults=True)
        results.print(yaml.safe_dump(content, sort_keys=False).rstrip(), markup=False)

    conclude(as_json, record, show)


for _one in (
    _command("rollout pause", "pause"),
    _command("rollout resume", "resume"),
    _command("rollout promote", "promote"),
    _command("rollout rollback", "rollback", follow=_follow_rollout),
):
    _one.add_to(app)

replace = _command("replace", "replace", follow=_follow_rollout).function()
