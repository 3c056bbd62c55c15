"""`durable policy`: publish, list, compare, promote, pause and roll back revisions."""

from pathlib import Path
from typing import Annotated

import typer

from durable.cli.commands.get import resource_command
from durable.cli.commands.policy_orders import (
    MAX_REVISION,
    ORDERS,
    RevisionArgument,
    freeze,
)
from durable.cli.connections import audited_input, with_durable, with_reader
from durable.cli.input.manifests import ManifestError, load_manifest
from durable.cli.input.options import (
    AsJson,
    Reason,
    RegionOption,
    StateDir,
    parse_region,
)
from durable.cli.render.output import print_json, results
from durable.cli.render.policies import print_policy, print_shadows
from durable.cli.render.spec_diff import differences, show_value
from durable.cli.render.tables import print_table
from durable.client import Durable
from durable.model.policy.policy import Policy
from durable.model.policy.rollout import PolicyPhase, PolicyRollout
from durable.model.refusal import RefusalCode, RefusedError
from durable.resources.orders import PolicyDetail
from durable.resources.reader import Reader
from durable.resources.table import POLICIES

app = typer.Typer(
    no_args_is_help=True, help="Publish, compare, promote and roll back scheduler policies."
)


@app.command()
def publish(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A YAML file with one policy.")],
    reason: Reason = "durable policy publish",
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Check a policy and publish it as the next revision; nothing is decided under it yet."""
    with audited_input(state_dir, "policy publish"):
        found = load_manifest(file, Policy, Reader.policy_problems)
        if len(found) > 1:
            raise ManifestError(f"{file}: it has {len(found)} documents; a policy is one document")
    policy = found[0]

    async def send(durable: Durable) -> PolicyRollout:
        try:
            number = await durable.policies.publish(policy, reason=reason)
            return await durable.policy_rollout(number)
        except RefusedError as error:
            if error.refusal.code is not RefusalCode.INVALID:
                raise
            raise ManifestError(f"{file}:1: {error.refusal.sentence}") from error

    rollout = with_durable(state_dir, send)
    revision, phase = rollout.revision, rollout.phase
    if as_json:
        print_json({"revision": revision})
    elif phase is not PolicyPhase.SHADOW:
        shown = phase.replace("_", " ")
        results.print(f"Revision {revision} has this content already, and is {shown}.")
    else:
        results.print(
            f"Revision {revision} is published. See what it would change with `durable policy "
            f"shadow {revision}`, then promote it with `durable policy promote {revision}`."
        )


app.command("list")(resource_command(POLICIES, limit=20))


@app.command()
def show(revision: RevisionArgument, state_dir: StateDir = None, as_json: AsJson = False) -> None:
    """Show a revision: its content, where it is in force, its orders, what it did or would do."""
    shown: PolicyDetail = with_reader(
        state_dir, lambda reader: reader.show(POLICIES, str(revision))
    )
    if as_json:
        print_json(shown)
    else:
        print_policy(shown)


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

    async def read(reader: Reader) -> tuple[Policy, Policy]:
        return await reader.policy(before), await reader.policy(after)

    old, new = with_reader(state_dir, read)
    found = differences(old.model_dump(mode="json"), new.model_dump(mode="json"))
    if as_json:
        fields = [one.model_dump(mode="json") for one in found]
        print_json({"from": before, "to": after, "differences": fields})
    elif not found:
        results.print(f"Revisions {before} and {after} have the same content.")
    else:
        heads = ("Field", f"Revision {before}", f"Revision {after}")
        rows = [[one.field, show_value(one.before), show_value(one.after)] for one in found]
        print_table(heads, rows)


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
    if as_json:
        shown = [one.model_dump(mode="json") for one in reports]
        print_json({"revision": revision, "regions": shown, "unreachable": dict(answers.missing)})
    else:
        print_shadows(reports)


for order in ORDERS:
    order.add_to(app)
app.command()(freeze)
