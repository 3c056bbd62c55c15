"""`durable override`: what people decide for a while, and how they end it."""

import json
from typing import Annotated, Any

import typer

from durable.cli.connections import audited_input, with_durable, with_reader
from durable.cli.input.options import (
    AsJson,
    IdempotencyKey,
    Reason,
    StateDir,
    parse_option,
    parse_pairs,
    request_id_of,
)
from durable.cli.render.output import conclude, note_unreachable, say
from durable.cli.render.reports import print_report
from durable.cli.verbs import MessageCommand, message
from durable.client import Durable
from durable.model.ids import OverrideId
from durable.model.overrides.effects import OverrideScope
from durable.model.overrides.kinds import KINDS
from durable.reports.override import describe_override
from durable.resources.orders import OverrideRow
from durable.resources.table import OVERRIDES
from durable.signals.names import OVERRIDE
from durable.signals.overrides import OverrideStatus
from durable.validation.quantities import show_duration

app = typer.Typer(no_args_is_help=True)

_KINDS = "\n\n".join(
    f"{kind.name}: {kind.sentence} Lasts {show_duration(kind.default_ttl)} unless said otherwise, "
    f"at most {show_duration(kind.longest_ttl)}."
    for kind in KINDS.values()
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The override's name.")]


@app.command()
def create(
    kind: Annotated[str, typer.Argument(metavar="KIND", help=_KINDS)],
    reason: Reason,
    scope: Annotated[
        list[str] | None,
        typer.Option(
            "--scope",
            metavar="NAME=VALUE",
            help="What it is about: region, zone, node, tenant "
            "or workload, such as region=us-east; repeatable.",
        ),
    ] = None,
    effect: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=JSON",
            help="What it does, such as move=true or by=200; repeatable.",
        ),
    ] = None,
    ttl: Annotated[
        str | None, typer.Option("--ttl", help="For how long, such as 30m.", show_default=False)
    ] = None,
    ticket: Annotated[str | None, typer.Option("--ticket", help="A ticket, for people.")] = None,
    name: Annotated[
        str | None, typer.Option("--name", help="Its name; one is made up otherwise.")
    ] = None,
    request_id: IdempotencyKey = None,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Propose an override; it ends by itself after its time."""
    with audited_input(state_dir, f"override create {kind[:40]}"):
        if kind not in KINDS:
            raise typer.BadParameter(
                f"there is no kind {kind!r}; allowed: {', '.join(KINDS)}", param_hint="KIND"
            )
        named = parse_pairs("--scope", scope, "zone=us-east-a", str)
        unknown = sorted(set(named) - set(OverrideScope.model_fields))
        if unknown:
            known = ", ".join(OverrideScope.model_fields)
            raise typer.BadParameter(f"got {unknown[0]!r}; allowed: {known}", param_hint="--scope")
        effects = parse_pairs("--set", effect, "by=200", _json)
        lasts = None if ttl is None else parse_option("--ttl", KINDS[kind].read_ttl, ttl)
        called = None if name is None else parse_option("--name", OverrideId, name)

    async def propose(durable: Durable) -> tuple[OverrideRow, str]:
        made, answer = await durable.overrides.create(
            kind,
            named,
            reason=reason,
            effect=effects,
            ttl=lasts,
            ticket=ticket,
            id=called,
            request_id=request_id_of(request_id),
        )
        return await durable.show(OVERRIDES, made.id), answer

    override, answer = with_durable(state_dir, propose)
    note_unreachable(override.unreachable)
    conclude(as_json, {"override": override, "answer": answer}, say(f"{override.id}: {answer}"))


def _override(name: str) -> OverrideId:
    return parse_option("NAME", OverrideId, name)


def _order(name: str) -> MessageCommand:
    return MessageCommand(
        path=f"override {name}",
        message=message(OVERRIDE, name),
        target={"name": (Name,)},
        parse=_override,
        send=lambda durable, given: getattr(durable.overrides, name)(given.target, **given.fields),
        continues=("override", "durable get overrides"),
    )


for _name in ("approve", "reject", "revoke", "extend"):
    _order(_name).add_to(app)


@app.command()
def show(name: Name, state_dir: StateDir = None, as_json: AsJson = False) -> None:
    """Show one override: what it does, until when, who agreed, and its effect so far."""
    id = _override(name)
    row: OverrideRow = with_reader(state_dir, lambda reader: reader.show(OVERRIDES, id))
    status = OverrideStatus(
        override=row, regions=row.obeyed_in, unreachable_regions=row.unreachable
    )
    report = describe_override(status, row.read_at, row.so_far)
    note_unreachable(row.unreachable)
    conclude(as_json, {"override": row}, lambda: print_report(report))


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
