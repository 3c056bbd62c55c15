"""`durable operator`: people and services, what they may do, and the keys they sign with."""

from collections.abc import Awaitable, Callable
from typing import Annotated

import typer
from pydantic import TypeAdapter

from durable.authority.db.connection import Databases
from durable.authority.operators import changes
from durable.cli.commands.get import resource_command
from durable.cli.connections import current_user, with_authority, with_reader
from durable.cli.input.options import (
    AsJson,
    Reason,
    StateDir,
    flag,
    load_settings,
    parse_option,
)
from durable.cli.render.output import conclude, say
from durable.model.ids import ActorId, RegionId, TenantId
from durable.model.operators.rights import (
    EVERYTHING,
    Operator,
    OperatorKind,
    PublicKey,
    Right,
    Scope,
    Verb,
)
from durable.resources.resource import Sources
from durable.resources.table import OPERATORS
from durable.validation.text import PLAIN_TEXT, show_moment

app = typer.Typer(no_args_is_help=True)

_PUBLIC_KEY: TypeAdapter[str] = TypeAdapter(PublicKey)
EVERY_VERB = "all"
_VERBS = ", ".join([*Verb, EVERY_VERB])

Name = Annotated[str, typer.Argument(metavar="NAME", help="Such as person:alice or service:ci.")]
Verbs = Annotated[list[str], typer.Argument(metavar="VERB...", help=f"What may be done: {_VERBS}.")]
OfTenant = Annotated[str | None, typer.Option("--tenant", help="Only for this tenant's workloads.")]
InRegion = Annotated[str | None, typer.Option("--region", help="Only in this region.")]


@app.command()
def add(
    name: Name,
    right: Annotated[
        list[str] | None,
        typer.Option("--right", metavar="VERB", help=f"A right, repeatable: {_VERBS}."),
    ] = None,
    tenant: OfTenant = None,
    region: InRegion = None,
    service: Annotated[bool, flag("--service", help="It is a program, not a person.")] = False,
    reason: Reason = "durable operator add",
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Add a person or a service; without rights it may change nothing."""
    operator, why = _named(name), _reason(reason)
    scope, verbs = _scope(tenant, region), [_verb(one) for one in right or []]
    kind = OperatorKind.SERVICE if service else OperatorKind.PERSON

    async def change(databases: Databases) -> Operator:
        await _refuse_unknown(databases, scope)
        rights = [Right(verb=verb, scope=scope) for verb in verbs]
        actor = current_user()
        return await changes.add_operator(
            databases, operator, kind=kind, rights=rights, actor=actor, reason=why
        )

    _show(with_authority(state_dir, change), as_json)


app.command("list")(resource_command(OPERATORS))


@app.command()
def show(name: Name, state_dir: StateDir = None, as_json: AsJson = False) -> None:
    """Show one operator with its rights and its key."""
    operator = _named(name)
    _show(with_reader(state_dir, lambda reader: reader.show(OPERATORS, operator)), as_json)


def _rights(
    verb: str, change: Callable[..., Awaitable[Operator]], sentence: str
) -> Callable[..., None]:
    """One command that changes rights, each by itself."""

    def command(
        name: Name,
        verbs: Verbs,
        tenant: OfTenant = None,
        region: InRegion = None,
        reason: Reason = f"durable operator {verb}",
        state_dir: StateDir = None,
        as_json: AsJson = False,
    ) -> None:
        operator, why, scope = _named(name), _reason(reason), _scope(tenant, region)
        rights = [Right(verb=_verb(one), scope=scope) for one in verbs]

        async def run(databases: Databases) -> Operator:
            if change is changes.grant_right:
                await _refuse_unknown(databases, scope)
            by = {"actor": current_user(), "reason": why}
            changed = [await change(databases, operator, right, **by) for right in rights]
            return changed[-1]

        _show(with_authority(state_dir, run), as_json)

    command.__name__, command.__doc__ = verb, sentence
    return command


for _verb_name, _change, _sentence in (
    (
        "grant",
        changes.grant_right,
        "Grant rights: for one tenant, in one region, or without both on everything.",
    ),
    ("revoke", changes.revoke_right, "Revoke rights as they were granted."),
):
    app.command()(_rights(_verb_name, _change, _sentence))


@app.command()
def remove(
    name: Name,
    reason: Reason = "durable operator remove",
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Remove an operator: nothing it sends changes anything from now on."""
    operator, why = _named(name), _reason(reason)

    async def change(databases: Databases) -> Operator:
        return await changes.remove_operator(databases, operator, actor=current_user(), reason=why)

    removed = str(with_authority(state_dir, change).id)
    conclude(as_json, {"removed": removed}, say(f"{removed} is no longer an operator."))


@app.command()
def key(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Whose key; without a name, your own.")
    ] = None,
    public: Annotated[
        str | None,
        typer.Option("--public", help="A public key that was made elsewhere; no file is written."),
    ] = None,
    forget: Annotated[
        bool, flag("--forget", help="Forget the key: it is lost, or others may know it.")
    ] = False,
    reason: Reason = "durable operator key",
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Make a key to sign with, and register its public half; needs the right operators."""
    # Imported here: only this command makes keys.
    from durable.model.operators.signature import public_key_of
    from durable.temporal.signing import create_key, key_path, read_key

    operator, why = current_user() if name is None else _named(name), _reason(reason)
    if public is not None and forget:
        raise typer.BadParameter("give one of --public and --forget", param_hint="--forget")
    path = None
    if public is None and not forget:
        keys = load_settings(state_dir).own_keys
        path = key_path(keys, operator)
        public = public_key_of(read_key(keys, operator) or create_key(keys, operator))
    elif public is not None:
        public = parse_option("--public", _PUBLIC_KEY.validate_python, public)

    async def change(databases: Databases) -> Operator:
        return await changes.set_key(databases, operator, public, actor=current_user(), reason=why)

    changed = with_authority(state_dir, change)
    where = "" if path is None else f" The key is in {path}; keep it to yourself."
    sentence = f"{changed.id} signs with {public}.{where}"
    if public is None:
        sentence = f"{changed.id} no longer has a key; what it signed is refused from now on."
    content = {**changed.model_dump(mode="json"), "file": None if path is None else str(path)}
    conclude(as_json, content, say(sentence))


def _show(operator: Operator, as_json: bool) -> None:
    at = show_moment(operator.created_at)
    lines = [
        f"{operator.id}, a {operator.kind}, added by {operator.created_by} at {at}",
        f"Key: {operator.public_key or 'none'}",
        *(f"May: {right}" for right in operator.rights),
    ]
    if not operator.rights:
        lines.append("May: nothing; see `durable operator grant`")
    conclude(as_json, operator, say("\n".join(lines)))


async def _refuse_unknown(databases: Databases, scope: Scope) -> None:
    """A right for what does not exist is a mistake of spelling."""
    if scope.region is not None:
        await Sources(databases).select_regions(scope.region)
    if scope.tenant is not None:
        await changes.refuse_unknown_tenant(databases, scope.tenant)


def _named(name: str) -> ActorId:
    return parse_option("NAME", ActorId, name)


def _reason(reason: str) -> str:
    return parse_option("--reason", PLAIN_TEXT.validate_python, reason)


def _verb(text: str) -> Verb | None:
    if text == EVERY_VERB:
        return None
    if text not in set(Verb):
        raise typer.BadParameter(f"there is no right {text!r}; allowed: {_VERBS}")
    return Verb(text)


def _scope(tenant: str | None, region: str | None) -> Scope:
    if tenant is None and region is None:
        return EVERYTHING
    return Scope(
        tenant=None if tenant is None else parse_option("--tenant", TenantId, tenant),
        region=None if region is None else parse_option("--region", RegionId, region),
    )
