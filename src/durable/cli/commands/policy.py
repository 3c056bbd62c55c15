"""`durable policy`: publish, list, compare, promote, pause, roll back and freeze revisions."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
import yaml

from durable.cli.commands.get import resource_command
from durable.cli.connections import audited_input, with_durable, with_reader
from durable.cli.input.manifests import ManifestError, load_manifest
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
from durable.cli.render.output import conclude, note_unreachable, print_lines, results, say
from durable.cli.render.reports import print_report, print_sections
from durable.cli.render.spec_diff import Comparison
from durable.cli.verbs import MessageCommand, VerbInput, message
from durable.model.overrides.kinds import KINDS
from durable.model.policy.policy import Policy
from durable.model.policy.rollout import (
    ON_THE_WAY,
    PolicyPhase,
    PolicyProgress,
    PolicyRollout,
    RolledBack,
)
from durable.model.refusal import RefusalCode, RefusedError
from durable.reports.policy import (
    describe_policy,
    describe_rolled_back,
    describe_shadow,
    summary_of_policy,
    summary_of_rollout,
)
from durable.resources.orders import PolicyDetail
from durable.resources.reader import Reader
from durable.resources.table import POLICIES
from durable.signals.names import POLICY
from durable.signals.policies import PolicyStatus
from durable.validation.text import counted

if TYPE_CHECKING:
    from durable.client import Durable

app = typer.Typer(no_args_is_help=True)

MAX_REVISION = 2**31 - 1
FREEZE = KINDS["policy-freeze"]
# Where a revision came in the end, and what became of what it had placed.
PolicyOutcome = tuple[PolicyProgress | None, RolledBack]

RevisionArgument = Annotated[
    int, typer.Argument(metavar="REVISION", min=1, max=MAX_REVISION, help="A revision.")
]


@app.command()
def publish(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A YAML file with one policy.")],
    reason: Reason = "durable policy publish",
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Check a policy and publish it as the next revision; nothing is decided under it yet."""
    with audited_input(state_dir, "policy publish"):
        policy, *more = load_manifest(file, Policy, Reader.policy_problems)
        if more:
            count = 1 + len(more)
            raise ManifestError(f"{file}: it has {count} documents; a policy is one document")

    async def send(durable: "Durable") -> PolicyRollout:
        try:
            number = await durable.policies.publish(policy, reason=reason)
            return await durable.policy_rollout(number)
        except RefusedError as error:
            if error.refusal.code is not RefusalCode.INVALID:
                raise
            raise ManifestError(f"{file}:1: {error.refusal.sentence}") from error

    rollout = with_durable(state_dir, send)
    revision, phase = rollout.revision, rollout.phase.replace("_", " ")
    sentence = f"Revision {revision} has this content already, and is {phase}."
    if rollout.phase is PolicyPhase.SHADOW:
        sentence = (
            f"Revision {revision} is published. See what it would change with `durable policy "
            f"shadow {revision}`, then promote it with `durable policy promote {revision}`."
        )
    conclude(as_json, {"revision": revision}, say(sentence))


app.command("list")(resource_command(POLICIES, limit=20))


@app.command()
def show(revision: RevisionArgument, state_dir: StateDir = None, as_json: AsJson = False) -> None:
    """Show a revision: its content, where it is in force, its orders, what it did or would do."""
    shown: PolicyDetail = with_reader(
        state_dir, lambda reader: reader.show(POLICIES, str(revision))
    )
    note_unreachable(shown.unreachable)
    conclude(as_json, shown, lambda: _print(shown))


def _print(shown: PolicyDetail) -> None:
    revision = shown.rollout.revision
    print_report(describe_policy(PolicyStatus(revision=revision, progress=shown)))
    print_lines(f"Order {order.number}: {order}" for order in shown.orders)
    results.print(yaml.safe_dump(shown.spec, sort_keys=False).rstrip(), markup=False)


@app.command()
def diff(
    before: Annotated[
        int, typer.Argument(metavar="A", min=1, max=MAX_REVISION, help="A revision.")
    ],
    after: Annotated[int, typer.Argument(metavar="B", min=1, max=MAX_REVISION, help="Another.")],
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Show what differs between two revisions."""

    async def read(reader: Reader) -> tuple[dict[str, object], dict[str, object]]:
        old, new = await reader.policy(before), await reader.policy(after)
        return old.model_dump(mode="json"), new.model_dump(mode="json")

    same = f"Revisions {before} and {after} have the same content."
    comparison = Comparison("Revision", before, after, *with_reader(state_dir, read), same)
    conclude(as_json, comparison.content, comparison.print)


@app.command()
def shadow(
    revision: RevisionArgument,
    region: RegionOption = None,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Make recent decisions again under a revision, and show what would have changed."""
    only = parse_region(region)
    answers = with_reader(state_dir, lambda reader: reader.shadow(revision, only))
    reports = list(answers.by_region.values())
    content = {"revision": revision, "regions": reports, "unreachable": dict(answers.unreachable)}
    note_unreachable(answers.unreachable)
    conclude(as_json, content, lambda: print_sections(map(describe_shadow, reports)))


# ── orders ──────────────────────────────────────────────────────────────────────────────────────


async def _promote(durable: "Durable", given: VerbInput) -> tuple[int, str]:
    seen = await durable.policy_rollout(given.target)
    # A person who does not know of the promotion before theirs must not end its watch.
    is_watched = seen.phase in ON_THE_WAY and not seen.is_paused
    after = seen.number if given.own["now"] or not is_watched else None
    answer = await durable.policies.promote(given.target, after=after, **given.fields)
    return seen.revision, answer


async def _pause(durable: "Durable", given: VerbInput) -> str:
    seen = await durable.policy_rollout(given.target)
    return await durable.policies.pause(given.target, after=seen.number, **given.fields)


async def _roll_back(durable: "Durable", given: VerbInput) -> tuple[int, str]:
    if given.target is None:
        seen = await durable.policies.newest_in_force()
    else:
        seen = await durable.policy_rollout(given.target)
    answer = await durable.policies.roll_back(seen.revision, after=seen.number, **given.fields)
    return seen.revision, answer


async def _follow_back(
    durable: "Durable", given: VerbInput, sent: tuple[int, str]
) -> PolicyOutcome:
    progress, _ = await _follow(durable, given, sent)
    return progress, await durable.policies.report(sent[0])


async def _follow(durable: "Durable", given: VerbInput, sent: tuple[int, str]) -> PolicyOutcome:
    """Shows the revision until it has ended, or waits for a person."""
    revision, answer = sent
    progress = None
    if not given.as_json:
        results.print(answer)
    if given.timeout_seconds is not None:
        progress = await follow_lines(
            durable.policies.follow(revision),
            summary_of_policy,
            name=f"Revision {revision}",
            within_seconds=given.timeout_seconds,
        )
    return progress, RolledBack()


def _conclude(wanted: PolicyPhase) -> Callable[[VerbInput, tuple[int, str], PolicyOutcome], None]:
    """Ends well if the revision came where it was sent, or was not waited for."""

    def conclude_order(given: VerbInput, sent: tuple[int, str], outcome: PolicyOutcome) -> None:
        revision, (progress, report) = sent[0], outcome
        phase, failure = None if progress is None else progress.rollout.phase, None
        if progress is not None and phase is not wanted:
            failure = f"It did not come to {wanted}: {summary_of_rollout(progress.rollout)}"

        def show() -> None:
            if progress is not None and wanted is PolicyPhase.ROLLED_BACK:
                _print_rolled_back(report)
            if progress is not None and failure is None:
                results.print(f"Revision {revision} is {wanted.replace('_', ' ')}.")

        counts = {"report": report.shares, "report_count": report.count}
        content = {"revision": revision, "phase": phase, **counts}
        conclude(given.as_json, content, show, failure=failure, code="not_reached")

    return conclude_order


def _print_rolled_back(report: RolledBack) -> None:
    sections = describe_rolled_back(report.shares, report.count)
    print_sections(sections)
    if not sections:
        results.print("No replica was placed under it.")
    if report.more:
        results.print(f"and {counted(report.more, 'more workload')}")


_NOW = flag("--now", help="Do not wait until the watch of a region is over.")
_ANOTHER = typer.Option(
    "--revision",
    min=1,
    max=MAX_REVISION,
    help="Roll this one back instead of the one that is in force or on its way.",
)

for _order in (
    MessageCommand(
        path="policy promote",
        message=message(POLICY, "promote"),
        sentence="Bring a revision into force region by region; or go on with one that is paused "
        "or watched.",
        target={"revision": (RevisionArgument,)},
        own={"now": (Annotated[bool, _NOW], False)},
        send=_promote,
        follow=_follow,
        conclude=_conclude(PolicyPhase.EVERYWHERE),
        continues=("revision", "durable policy list"),
    ),
    MessageCommand(
        path="policy pause",
        message=message(POLICY, "pause"),
        target={"revision": (RevisionArgument,)},
        send=_pause,
    ),
    MessageCommand(
        path="policy rollback",
        message=message(POLICY, "rollback"),
        sentence="Roll the revision in force back everywhere, and say what became of each "
        "workload.",
        target={"revision": (Annotated[int | None, _ANOTHER], None)},
        send=_roll_back,
        follow=_follow_back,
        conclude=_conclude(PolicyPhase.ROLLED_BACK),
        continues=("rollback", "durable policy list"),
    ),
):
    _order.add_to(app)


@app.command()
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

    async def propose(durable: "Durable") -> tuple[str, str]:
        made, answer = await durable.overrides.create(
            FREEZE.name,
            {} if only is None else {"region": only},
            reason=reason,
            ttl=lasts,
            request_id=request_id_of(request_id),
        )
        return str(made.id), answer

    name, answer = with_durable(state_dir, propose)
    end = f"To end it early: `durable override revoke {name} --reason ...`"
    conclude(as_json, {"override": name, "answer": answer}, say(f"{name}: {answer}\n{end}"))
