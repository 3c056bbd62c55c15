"""`durable send`: sends an operator's message to the placements of a workload."""

import uuid
from collections.abc import Mapping, Sequence
from typing import Annotated

import typer
from pydantic import ValidationError

from durable.authority.workloads.rows import read_workload
from durable.cli.connections import with_durable
from durable.cli.input.names import parse_workload
from durable.cli.input.options import AsJson, StateDir
from durable.cli.render.output import print_json, results
from durable.cli.render.phrases import numbered
from durable.client import Durable, Told
from durable.model.ids import RegionId, TenantId, WorkloadName
from durable.model.refusal import RefusalCode, RefusedError
from durable.signals.messages import Asked, Evict, Hold, Resume, RetryNow
from durable.signals.names import placement_id
from durable.validation.problems import problems_in, sentences

# Each message that the command offers: the type of its payload, and its line in the help.
_OFFERED: dict[str, tuple[type[Asked], str]] = {
    "hold": (Hold, "place nothing new until resumed; what runs keeps running"),
    "resume": (Resume, "end a hold"),
    "retry-now": (RetryNow, "try to place waiting slots now, without waiting for the backoff"),
    "evict": (Evict, "stop slots and place them again: those named by --slot, or all"),
}
_HELP = "\n\n".join(f"{name}: {sentence}." for name, (_, sentence) in _OFFERED.items())


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
    payload_type = _payload_type(message, has_slots=bool(slot))

    async def send_all(durable: Durable) -> list[Told]:
        content = {
            "actor": durable.actor,
            "reason": reason,
            "request_id": request_id or f"cli-{uuid.uuid4()}",
        }
        answers: list[Told] = []
        for placement, slots in (await _find_targets(durable, target, slot or [])).items():
            payload = _build(payload_type, {**content, "slots": slots} if slots else content)
            answers.append(await durable.tell(placement, message.replace("-", "_"), payload))
        return answers

    answers = with_durable(state_dir, send_all)
    if as_json:
        print_json({"answers": [answer.model_dump(mode="json") for answer in answers]})
        return
    for answer in answers:
        results.print(f"{answer.placement}: {answer.answer}", markup=False)


def _payload_type(message: str, *, has_slots: bool) -> type[Asked]:
    if message not in _OFFERED:
        raise typer.BadParameter(
            f"there is no message {message!r}; send one of {', '.join(_OFFERED)}",
            param_hint="MESSAGE",
        )
    payload_type, _ = _OFFERED[message]
    if has_slots and "slots" not in payload_type.model_fields:
        raise typer.BadParameter(f"{message} takes no slots; omit it", param_hint="--slot")
    return payload_type


def _build(payload_type: type[Asked], content: Mapping[str, object]) -> Asked:
    try:
        return payload_type.model_validate(content)
    except ValidationError as error:
        raise typer.BadParameter(sentences(problems_in(error, payload_type))) from None


async def _find_targets(durable: Durable, target: str, slots: list[int]) -> dict[str, list[int]]:
    """The placements to send to, each with its part of the slots; all are known before any send."""
    if target.startswith("placement/"):
        return {target: slots}
    tenant, workload = parse_workload(target)
    found = await read_workload(durable.databases, tenant, workload)
    if found is None or found.deleted or not found.share:
        raise RefusedError(
            RefusalCode.NO_PLACEMENTS,
            f"{tenant}/{workload} has no placements; see `durable get placements`.",
        )
    _refuse_unknown_slots(tenant, workload, slots, found.share)
    return {
        placement_id(tenant, workload, found.generation, RegionId(region)): [
            slot for slot in slots if slot in share
        ]
        for region, share in sorted(found.share.items())
        if not slots or set(slots) & set(share)
    }


def _refuse_unknown_slots(
    tenant: TenantId,
    workload: WorkloadName,
    slots: list[int],
    shares: Mapping[RegionId, Sequence[int]],
) -> None:
    known = sorted(slot for share in shares.values() for slot in share)
    unknown = sorted(set(slots) - set(known))
    if unknown:
        raise RefusedError(
            RefusalCode.UNKNOWN_SLOT,
            f"{tenant}/{workload} has no slot {unknown[0]}; it has {numbered('slot', known)}.",
        )
