"""`durable send`: sends an operator's message to the placements of a workload."""

import asyncio
import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated

import typer
from pydantic import ValidationError

from durable.cli.connections import with_durable
from durable.cli.input.options import AsJson, StateDir, parse_workload
from durable.cli.render.output import error_object, fail, numbered, print_json
from durable.cli.render.tables import print_table
from durable.client import Durable
from durable.model.ids import TenantId, WorkloadName
from durable.model.refusal import RefusalCode, RefusedError
from durable.signals.names import PLACEMENT
from durable.signals.registry import Message, messages_to
from durable.state_dir.record import StackError
from durable.validation.problems import problems_in, sentences
from durable.validation.value import Value

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
    """Send an operator's message to placements, and print what each answers."""
    offered = _find_message(message, has_slots=bool(slot))

    async def send_all(durable: Durable) -> list[AnswerRow]:
        content = {
            **_parse_fields(fields or []),
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
    if as_json:
        content = [answer.model_dump(mode="json") for answer in answers]
        code = refused[0].refused or "" if refused else ""
        print_json({"answers": content, **error_object(code, failure)})
    else:
        print_table(
            ("Placement", "Outcome", "Answer"),
            [(one.placement, one.refused or "accepted", one.answer) for one in answers],
        )
    if failure is not None:
        fail(failure)


class AnswerRow(Value):
    """What one placement answered, or why it could not be asked or refused."""

    placement: str
    # The code of the refusal.
    refused: str | None = None
    answer: str


async def _send(
    durable: Durable, placement: str, message: Message, fields: Mapping[str, object]
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


def _parse_fields(fields: Sequence[str]) -> dict[str, object]:
    content: dict[str, object] = {}
    for field in fields:
        name, equals, value = field.partition("=")
        try:
            content[name] = json.loads(value)
        except ValueError:
            equals = ""
        if not equals:
            raise typer.BadParameter(
                f"got {field!r}; allowed: NAME=JSON, such as replicas=3", param_hint="--set"
            )
    return content


def _check(message: Message, content: Mapping[str, object]) -> None:
    try:
        message.payload.model_validate(content)
    except ValidationError as error:
        raise typer.BadParameter(sentences(problems_in(error, message.payload))) from None


async def _find_targets(durable: Durable, target: str, slots: list[int]) -> dict[str, list[int]]:
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
