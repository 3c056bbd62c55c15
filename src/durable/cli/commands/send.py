"""`durable send` and `durable sign`: any message to placements, and one signed for the UI."""

import asyncio
import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from pydantic import ValidationError

from durable.cli.connections import current_user, with_authority, with_durable
from durable.cli.input.options import (
    AsJson,
    StateDir,
    load_settings,
    parse_pairs,
    parse_workload,
)
from durable.cli.render.output import conclude, numbered
from durable.cli.render.tables import print_table
from durable.model.ids import ActorId, TenantId, WorkloadName
from durable.model.refusal import RefusalCode, RefusedError
from durable.signals.names import PLACEMENT, kind_of
from durable.signals.registry import Message, Sender, messages_to
from durable.state_dir.record import StackError
from durable.validation.problems import problems_in, sentences
from durable.validation.value import Value

if TYPE_CHECKING:
    from durable.client import Durable

# The messages that the command offers, as they are written on the command line.
_OFFERED = {
    message.name.replace("_", "-"): message
    for message in messages_to(PLACEMENT)
    if message.is_in_cli
}
_HELP = "\n\n".join(f"{name}: {message.sentence}" for name, message in _OFFERED.items())


def send(
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="TENANT/NAME, or the id of one placement.")
    ],
    message: Annotated[str, typer.Argument(metavar="|".join(_OFFERED), help=_HELP)],
    reason: Annotated[str, typer.Option("--reason", help="The reason, for the audit.")],
    slot: Annotated[
        list[int] | None,
        typer.Option(min=0, max=99_999, help="A slot that the message is about; repeatable."),
    ] = None,
    fields: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=JSON", help="Another field of the payload; repeatable."
        ),
    ] = None,
    request_id: Annotated[
        str | None,
        typer.Option(
            "--request-id",
            help="Idempotency key: a message sent again under it takes effect only once.",
        ),
    ] = None,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    offered = _find_message(message, has_slots=bool(slot))

    async def send_all(durable: "Durable") -> list[AnswerRow]:
        content = {
            **parse_pairs("--set", fields, "replicas=3", json.loads, "JSON"),
            "reason": reason,
            "request_id": f"cli-{uuid.uuid4()}" if request_id is None else request_id,
        }
        payloads = {
            placement: {**content, "slots": slots} if slots else content
            for placement, slots in (await _find_targets(durable, target, slot or [])).items()
        }
        for payload in payloads.values():
            _check(offered, {**payload, "actor": durable.actor})
        # One that refuses or does not answer keeps none of the others from being asked.
        return await asyncio.gather(
            *(_send(durable, placement, offered, one) for placement, one in payloads.items())
        )

    answers = with_durable(state_dir, send_all)
    refused = [answer for answer in answers if answer.refused is not None]
    failure = None if not refused else _failure(refused, len(answers))
    rows = [(one.placement, one.refused or "accepted", one.answer) for one in answers]
    conclude(
        as_json,
        {"answers": answers},
        lambda: print_table(("Placement", "Outcome", "Answer"), rows),
        failure=failure,
        code=refused[0].refused or "" if refused else "",
    )


class AnswerRow(Value):
    """What one placement answered, or why it could not be asked or refused."""

    placement: str
    # The code of the refusal.
    refused: str | None = None
    answer: str


async def _send(
    durable: "Durable", placement: str, message: Message, fields: Mapping[str, object]
) -> AnswerRow:
    try:
        answer = await durable.send(placement, message.name, **fields)
    except RefusedError as error:
        return AnswerRow(placement=placement, refused=error.refusal.code, answer=str(error))
    except StackError as error:
        return AnswerRow(placement=placement, refused="stack", answer=str(error))
    return AnswerRow(placement=placement, answer=answer)


def _failure(refused: Sequence[AnswerRow], asked: int) -> str:
    if asked == 1:
        return refused[0].answer
    return f"{len(refused)} of {asked} placements refused it; the others have accepted it."


def _find_message(name: str, *, has_slots: bool) -> Message:
    message = _OFFERED.get(name)
    if message is None:
        raise typer.BadParameter(
            f"there is no message {name!r}; send one of {', '.join(_OFFERED)}",
            param_hint="MESSAGE",
        )
    if has_slots and "slots" not in message.payload.model_fields:
        raise typer.BadParameter(f"{name} takes no slots; omit it", param_hint="--slot")
    return message


def _check(message: Message, content: Mapping[str, object], where: str | None = None) -> None:
    try:
        message.payload.model_validate_json(json.dumps(content))
    except ValidationError as error:
        problems = sentences(problems_in(error, message.payload))
        raise typer.BadParameter(problems, param_hint=where) from None


async def _find_targets(durable: "Durable", target: str, slots: list[int]) -> dict[str, list[int]]:
    """The placements to send to, each with its part of the slots; all are known before any send."""
    if target.startswith("placement/"):
        return {target: slots}
    tenant, workload = parse_workload(target)
    admitted = await durable.admitted(tenant, workload)
    placements: dict[str, set[int]] = {}
    if admitted is not None and not admitted.deleted:
        placements = await durable.slots_by_placement(admitted)
    if not placements:
        raise RefusedError(
            RefusalCode.NO_PLACEMENTS,
            f"{tenant}/{workload} has no placements; see `durable get placements`.",
        )
    _refuse_unknown_slots(tenant, workload, slots, placements.values())
    return {
        placement: [slot for slot in slots if slot in there]
        for placement, there in placements.items()
        if not slots or not there.isdisjoint(slots)
    }


def _refuse_unknown_slots(
    tenant: TenantId, workload: WorkloadName, slots: list[int], placements: Iterable[set[int]]
) -> None:
    known = sorted(slot for there in placements for slot in there)
    unknown = sorted(set(slots) - set(known))
    if unknown:
        raise RefusedError(
            RefusalCode.UNKNOWN_SLOT,
            f"{tenant}/{workload} has no slot {unknown[0]}; it has {numbered('slot', known)}.",
        )


# ── signing ─────────────────────────────────────────────────────────────────────────────────────


def sign(
    workflow_id: Annotated[
        str, typer.Argument(metavar="WORKFLOW_ID", help="Such as workload/risk/risk-api.")
    ],
    message: Annotated[str, typer.Argument(metavar="MESSAGE", help="Such as scale.")],
    content: Annotated[
        str,
        typer.Argument(
            metavar="JSON",
            help="The payload; actor and request_id are filled in where they are missing.",
        ),
    ],
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    # Imported here: only this command has to do with keys.
    from durable.temporal.signing import key_path, read_key, signer_of

    del as_json  # it prints nothing else
    offered = _find_signed(workflow_id, message)
    payload = {"actor": current_user(), "request_id": f"ui-{uuid.uuid4()}", **_object(content)}
    _check(offered, payload, "JSON")
    actor, keys = ActorId(str(payload["actor"])), load_settings(state_dir).own_keys
    key = read_key(keys, actor)
    if key is None:
        raise RefusedError(
            RefusalCode.SIGNATURE_MISSING,
            f"There is no key at {key_path(keys, actor)}; make one with `durable operator key`, or "
            "name its directory in DURABLE_KEYS_DIR.",
        )
    signer = with_authority(state_dir, lambda databases: signer_of(databases, key))
    typer.echo(json.dumps(signer.sign_content(workflow_id, message, payload)))


def _find_signed(workflow_id: str, name: str) -> Message:
    kind = kind_of(workflow_id)
    if kind is None:
        raise typer.BadParameter(
            f"{workflow_id!r} is not a workflow that takes messages; see the Temporal UI, or "
            "docs/messages.md",
            param_hint="WORKFLOW_ID",
        )
    offered = {one.name: one for one in messages_to(kind, sender=Sender.PERSON)}
    if name not in offered:
        raise typer.BadParameter(
            f"a {kind} takes no message {name!r}; allowed: {', '.join(offered)}",
            param_hint="MESSAGE",
        )
    return offered[name]


def _object(content: str) -> dict[str, Any]:
    try:
        read: object = json.loads(content)
    except ValueError as error:
        raise typer.BadParameter(f"it is not JSON: {error}", param_hint="JSON") from None
    if not isinstance(read, dict):
        raise typer.BadParameter("allowed: one JSON object", param_hint="JSON")
    return cast(dict[str, Any], read)
