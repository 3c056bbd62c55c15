"""`durable policy promote`, `pause`, `rollback` and `freeze`: orders about revisions."""

import asyncio
from typing import Annotated

import typer

from durable.authority.policies.rows import read_rollout
from durable.cli.connections import with_durable
from durable.cli.input.options import (
    AsJson,
    IdempotencyKey,
    NoWait,
    Reason,
    RegionOption,
    StateDir,
    Timeout,
    flag,
    parse_option,
    parse_region,
    request_id_of,
)
from durable.cli.render.output import error_object, fail, print_json, results
from durable.cli.render.policies import PolicyLines, describe_rollout, print_report
from durable.client import Durable
from durable.model.ids import RegionId
from durable.model.overrides.policy_freeze import KIND as FREEZE
from durable.model.policy.rollout import ON_THE_WAY, PolicyProgress, PolicyStage, RolledBack
from durable.model.refusal import RefusalCode, RefusedError

MAX_REVISION = 2**31 - 1
_NO_REPORT = RolledBack()

RevisionArgument = Annotated[
    int, typer.Argument(metavar="REVISION", min=1, max=MAX_REVISION, help="A revision.")
]


def promote(
    revision: RevisionArgument,
    canary: Annotated[
        str | None, typer.Option("--canary", metavar="REGION", help="The region that goes first.")
    ] = None,
    now: Annotated[
        bool, flag("--now", help="Do not wait until the watch of a region is over.")
    ] = False,
    no_wait: NoWait = False,
    timeout: Timeout = 3_600.0,
    request_id: IdempotencyKey = None,
    reason: Reason = "durable policy promote",
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Bring a revision into force region by region; or go on with one that is paused or watched."""
    first: RegionId | None = None if canary is None else parse_region(canary)
    request = request_id_of(request_id)

    async def send(durable: Durable) -> PolicyProgress | None:
        seen = await read_rollout(durable.databases, revision)
        # Whoever does not know of the promotion before theirs must not end its watch.
        is_watched = seen.stage in ON_THE_WAY and not seen.is_paused
        after = seen.number if now or not is_watched else None
        answer = await durable.policies.promote(
            revision, reason=reason, request_id=request, canary=first, after=after
        )
        results.print(answer) if not as_json else None
        return None if no_wait else await _follow(durable, revision, timeout)

    _conclude(with_durable(state_dir, send), revision, PolicyStage.EVERYWHERE, as_json)


def pause(
    revision: RevisionArgument,
    request_id: IdempotencyKey = None,
    reason: Reason = "durable policy pause",
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Bring a revision into force nowhere else until somebody promotes it again."""
    request = request_id_of(request_id)

    async def send(durable: Durable) -> str:
        seen = await read_rollout(durable.databases, revision)
        return await durable.policies.pause(
            revision, reason=reason, request_id=request, after=seen.number
        )

    answer = with_durable(state_dir, send)
    if as_json:
        print_json({"answer": answer})
    else:
        results.print(answer)


def rollback(
    reason: Reason,
    to: Annotated[
        int | None,
        typer.Option("--to", metavar="REVISION", min=1, max=MAX_REVISION, help="Go back to this."),
    ] = None,
    reroll: Annotated[
        bool, flag("--reroll", help="Replace what the revision placed, each up before a stop.")
    ] = False,
    revision: Annotated[
        int | None,
        typer.Option(
            "--revision", min=1, max=MAX_REVISION,
            help="Take this one back instead of the one that is in force or on its way.",
        ),
    ] = None,
    no_wait: NoWait = False,
    timeout: Timeout = 3_600.0,
    request_id: IdempotencyKey = None,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Take the revision in force back everywhere, and say what became of each workload."""
    request = request_id_of(request_id)

    async def send(
        durable: Durable,
    ) -> tuple[PolicyProgress | None, int, RolledBack]:
        if revision is None:
            seen = await durable.policies.newest_in_force()
        else:
            seen = await read_rollout(durable.databases, revision)
        number = seen.revision
        answer = await durable.policies.roll_back(
            number,
            reason=reason,
            request_id=request,
            to=to,
            reroll=reroll,
            after=seen.number,
        )
        results.print(answer) if not as_json else None
        progress = None if no_wait else await _follow(durable, number, timeout)
        return progress, number, await durable.policies.report(number)

    progress, number, report = with_durable(state_dir, send)
    if not as_json and not no_wait:
        print_report(report)
    _conclude(progress, number, PolicyStage.ROLLED_BACK, as_json, report)


async def _follow(durable: Durable, revision: int, within_seconds: float) -> PolicyProgress:
    """Shows the revision until it has settled, or waits for a person."""
    lines, last = PolicyLines(), None
    try:
        async with asyncio.timeout(within_seconds):
            async for last in durable.policies.follow(revision):
                lines.show(last)
    except TimeoutError:
        waits = "" if last is None or not last.waits_for else f" It waits: {last.waits_for}"
        raise RefusedError(
            RefusalCode.TIMED_OUT,
            f"Revision {revision} is not done after {within_seconds:.0f} s; it goes on.{waits}"[
                :500
            ],
        ) from None
    assert last is not None
    return last


def _conclude(
    progress: PolicyProgress | None,
    revision: int,
    wanted: PolicyStage,
    as_json: bool,
    report: RolledBack = _NO_REPORT,
) -> None:
    """Ends well if the revision came where it was sent, or was not waited for."""
    failure = None
    if progress is not None and progress.rollout.stage is not wanted:
        failure = f"It did not come to {wanted}: {describe_rollout(progress.rollout)}"
    if as_json:
        stage = None if progress is None else progress.rollout.stage.value
        rows = [one.model_dump(mode="json") for one in report.shares]
        content = {"revision": revision, "stage": stage, "report": rows}
        content = {**content, "report_count": report.count}
        print_json({**content, **error_object("not_reached", failure)})
    if failure is not None:
        fail(failure)
    if not as_json and progress is not None:
        results.print(f"Revision {revision} is {wanted.replace('_', ' ')}.")


def freeze(
    reason: Reason,
    region: RegionOption = None,
    ttl: Annotated[
        str | None, typer.Option("--ttl", help="For how long, such as 4h.", show_default=False)
    ] = None,
    request_id: IdempotencyKey = None,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Have no revision promoted for a while; a rollback stays possible."""
    only = parse_region(region)
    lasts = None if ttl is None else parse_option("--ttl", FREEZE.read_ttl, ttl)

    async def propose(durable: Durable) -> tuple[str, str]:
        made, answer = await durable.overrides.create(
            FREEZE.name,
            {} if only is None else {"region": only},
            reason=reason,
            ttl=lasts,
            request_id=request_id_of(request_id),
        )
        return str(made.id), answer

    name, answer = with_durable(state_dir, propose)
    if as_json:
        print_json({"override": name, "answer": answer})
    else:
        results.print(f"{name}: {answer}", markup=False)
        results.print(f"To end it early: `durable override revoke {name} --reason ...`")
