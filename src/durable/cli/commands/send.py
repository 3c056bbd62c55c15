"""`durable send`: an operator's message to the placements of a workload, with its answer."""

import uuid
from enum import StrEnum
from typing import Annotated

import typer
from pydantic import ValidationError

from durable.authority.workloads.rows import read_workload
from durable.cli.connections import with_durable
from durable.cli.input.names import parse_workload
from durable.cli.input.options import AsJson, StateDir
from durable.cli.render.output import print_json, results
from durable.client import Durable, Told
from durable.model.ids import RegionId
from durable.model.refusal import RefusalCode, RefusedError
from durable.signals import messages
from durable.signals.messages import Asked
from durable.signals.names import placement_id
from durable.validation.problems import problems_in, sentences


class Verb(StrEnum):
    """What can be asked of a placement."""

    HOLD = "hold"
    RESUME = "resume"
    RETRY_NOW = "retry-now"
    EVICT = "evict"


_KINDS: dict[Verb, type[Asked]] = {
    Verb.HOLD: messages.Hold,
    Verb.RESUME: messages.Resume,
    Verb.RETRY_NOW: messages.RetryNow,
    Verb.EVICT: messages.Evict,
}


def send(
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="A placement's id, or TENANT/NAME for all.")
    ],
    message: Annotated[Verb, typer.Argument(help="What to ask.")],
    reason: Annotated[str, typer.Option("--reason", help="Why, for the audit.")],
    slot: Annotated[
        list[int] | None, typer.Option(min=0, max=99_999, help="Evict only this; repeatable.")
    ] = None,
    request_id: Annotated[
        str | None,
        typer.Option(
            "--request-id",
            help="Sent again under this id, the same message counts once; another one counts too.",
        ),
    ] = None,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Send an operator's message to placements, and print what each answers."""
    if slot and message is not Verb.EVICT:
        raise typer.BadParameter(f"{message} takes no slots; leave it away", param_hint="--slot")

    async def work(durable: Durable) -> list[Told]:
        named = request_id or f"cli-{uuid.uuid4()}"
        told: list[Told] = []
        for one, slots in (await _targets(durable, target, slot)).items():
            asked = _message(message, durable, reason, named, slots)
            told.append(await durable.tell(one, message.replace("-", "_"), asked))
        return told

    answers = with_durable(state_dir, work)
    if as_json:
        print_json({"answers": [answer.model_dump(mode="json") for answer in answers]})
        return
    for answer in answers:
        results.print(f"{answer.placement}: {answer.answer}", markup=False)


def _message(verb: Verb, durable: Durable, reason: str, request_id: str, slots: list[int]) -> Asked:
    content: dict[str, object] = {
        "actor": durable.actor,
        "reason": reason,
        "request_id": request_id,
    }
    if slots:
        content["slots"] = tuple(slots)
    try:
        return _KINDS[verb].model_validate(content)
    except ValidationError as error:
        raise typer.BadParameter(sentences(problems_in(error, _KINDS[verb]))) from None


async def _targets(durable: Durable, target: str, slots: list[int] | None) -> dict[str, list[int]]:
    """The placements to tell, each with those of the slots that it has; none is told in part."""
    if target.startswith("placement/"):
        return {target: slots or []}
    tenant, workload = parse_workload(target)
    found = await read_workload(durable.databases, tenant, workload)
    if found is None or found.deleted or not found.share:
        raise RefusedError(
            RefusalCode.NO_PLACEMENTS,
            f"{tenant}/{workload} has no placements now; see `durable get placements`.",
        )
    known = sorted(slot for share in found.share.values() for slot in share)
    unknown = sorted(set(slots or ()) - set(known))
    if unknown:
        has = f"slots {known[0]} to {known[-1]}" if len(known) > 1 else f"slot {known[0]} alone"
        raise RefusedError(
            RefusalCode.UNKNOWN_SLOT, f"{tenant}/{workload} has no slot {unknown[0]}; it has {has}."
        )
    return {
        placement_id(tenant, workload, found.generation, RegionId(region)): [
            slot for slot in slots or () if slot in share
        ]
        for region, share in sorted(found.share.items())
        if not slots or set(slots) & set(share)
    }
