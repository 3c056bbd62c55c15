"""`durable policy promote`, `pause`, `rollback` and `freeze`: orders about revisions."""

from typing import TYPE_CHECKING, Annotated

import typer

from durable.cli.connections import with_durable
from durable.cli.input.options import (
    AsJson,
    IdempotencyKey,
    Reason,
    RegionOption,
    StateDir,
    flag,
    parse_option,
    parse_region,
    request_id_of,
)
from durable.cli.render.following import follow_lines
from durable.cli.render.output import error_object, fail, print_json, results
from durable.cli.render.policies import print_rolled_back
from durable.cli.verbs import MessageCommand, VerbInput, message
from durable.model.overrides.kinds import KINDS
from durable.model.policy.rollout import ON_THE_WAY, PolicyPhase, PolicyProgress, RolledBack
from durable.reports.policy import summary_of_policy, summary_of_rollout
from durable.signals.names import POLICY

if TYPE_CHECKING:
    from durable.client import Durable

MAX_REVISION = 2**31 - 1
# Where a revision came in the end, and what became of what it had placed.
PolicyOutcome = tuple[PolicyProgress | None, RolledBack]

RevisionArgument = Annotated[
    int, typer.Argument(metavar="REVISION", min=1, max=MAX_REVISION, help="A revision.")
]


async def _promote(durable: "Durable", given: VerbInput) -> tuple[int, str]:
    seen = await durable.policies.read(given.target)
    # Whoever does not know of the promotion before theirs must not end its watch.
    is_watched = seen.phase in ON_THE_WAY and not seen.is_paused
    after = seen.number if given.own["now"] or not is_watched else None
    answer = await durable.policies.promote(given.target, after=after, **given.fields)
    return seen.revision, answer


async def _pause(durable: "Durable", given: VerbInput) -> str:
    seen = await durable.policies.read(given.target)
    return await durable.policies.pause(given.target, after=seen.number, **given.fields)


async def _roll_back(durable: "Durable", given: VerbInput) -> tuple[int, str]:
    if given.target is None:
        seen = await durable.policies.newest_in_force()
    else:
        seen = await durable.policies.read(given.target)
    answer = await durable.policies.roll_back(seen.revision, after=seen.number, **given.fields)
    return seen.revision, answer


async def _follow(
    durable: "Durable", given: VerbInput, sent: tuple[int, str]
) -> PolicyProgress | None:
    """Shows the revision until it has ended, or waits for a person."""
    revision, answer = sent
    if not given.as_json:
        results.print(answer)
    if given.timeout_seconds is None:
        return None
    return await follow_lines(
        durable.policies.follow(revision),
        summary_of_policy,
        name=f"Revision {revision}",
        within_seconds=given.timeout_seconds,
        waits_for=lambda now: now.waits_for,
    )


async def _follow_rollback(
    durable: "Durable", given: VerbInput, sent: tuple[int, str]
) -> PolicyOutcome:
    return await _follow(durable, given, sent), await durable.policies.report(sent[0])


def _conclude_promotion(
    given: VerbInput, sent: tuple[int, str], progress: PolicyProgress | None
) -> None:
    _conclude(given, sent[0], progress, PolicyPhase.EVERYWHERE, RolledBack())


def _conclude_rollback(given: VerbInput, sent: tuple[int, str], outcome: PolicyOutcome) -> None:
    progress, report = outcome
    if not given.as_json and progress is not None:
        print_rolled_back(report)
    _conclude(given, sent[0], progress, PolicyPhase.ROLLED_BACK, report)


def _conclude(
    given: VerbInput,
    revision: int,
    progress: PolicyProgress | None,
    wanted: PolicyPhase,
    report: RolledBack,
) -> None:
    """Ends well if the revision came where it was sent, or was not waited for."""
    failure = None
    if progress is not None and progress.rollout.phase is not wanted:
        failure = f"It did not come to {wanted}: {summary_of_rollout(progress.rollout)}"
    if given.as_json:
        phase = None if progress is None else progress.rollout.phase.value
        rows = [one.model_dump(mode="json") for one in report.shares]
        content = {"revision": revision, "phase": phase, "report": rows}
        content = {**content, "report_count": report.count}
        print_json({**content, **error_object("not_reached", failure)})
    if failure is not None:
        fail(failure)
    if not given.as_json and progress is not None:
        results.print(f"Revision {revision} is {wanted.replace('_', ' ')}.")


_NOW = flag("--now", help="Do not wait until the watch of a region is over.")
_ANOTHER = typer.Option(
    "--revision",
    min=1,
    max=MAX_REVISION,
    help="Take this one back instead of the one that is in force or on its way.",
)

ORDERS = (
    MessageCommand(
        path="policy promote",
        message=message(POLICY, "promote"),
        sentence="Bring a revision into force region by region; or go on with one that is paused "
        "or watched.",
        target={"revision": (RevisionArgument,)},
        own={"now": (Annotated[bool, _NOW], False)},
        send=_promote,
        follow=_follow,
        conclude=_conclude_promotion,
        continues=("revision", "durable policy list"),
    ),
    MessageCommand(
        path="policy pause",
        message=message(POLICY, "pause"),
        sentence="Bring a revision into force nowhere else until somebody promotes it again.",
        target={"revision": (RevisionArgument,)},
        send=_pause,
    ),
    MessageCommand(
        path="policy rollback",
        message=message(POLICY, "rollback"),
        sentence="Take the revision in force back everywhere, and say what became of each "
        "workload.",
        target={"revision": (Annotated[int | None, _ANOTHER], None)},
        send=_roll_back,
        follow=_follow_rollback,
        conclude=_conclude_rollback,
        continues=("rollback", "durable policy list"),
    ),
)


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
    lasts = None if ttl is None else parse_option("--ttl", KINDS["policy-freeze"].read_ttl, ttl)

    async def propose(durable: "Durable") -> tuple[str, str]:
        made, answer = await durable.overrides.create(
            KINDS["policy-freeze"].name,
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
