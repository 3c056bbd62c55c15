"""`durable send`: an operator's message to the placements of a workload, with its answer."""

import uuid
from enum import StrEnum
from typing import Annotated

import typer
from pydantic import ValidationError

from durable.authority.workloads import read_workload
from durable.cli.options import AsJson, StateDir
from durable.cli.output import print_json, results
from durable.cli.sdk import with_durable, workload_named
from durable.client import Durable, Told
from durable.model.ids import RegionId
from durable.model.problems import problems_in, sentences
from durable.model.refusal import RefusalCode, RefusedError
from durable.signals import messages
from durable.signals.messages import Asked
from durable.signals.names import placement_id


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
        str | None, typer.Option("--request-id", help="Sent again under this id, it counts once.")
    ] = None,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Hold, resume, retry or evict placements; each of them answers."""
    if slot and message is not Verb.EVICT:
        raise typer.BadParameter(f"{message} takes no slots; leave it away", param_hint="--slot")

    async def work(durable: Durable) -> list[Told]:
        ids = [target] if target.startswith("placement/") else await _placements(durable, target)
        asked = _message(message, durable, reason, request_id, slot)
        return [await durable.tell(one, message.replace("-", "_"), asked) for one in ids]

    answers = with_durable(state_dir, work)
    if as_json:
        print_json({"answers": [answer.model_dump(mode="json") for answer in answers]})
        return
    for answer in answers:
        results.print(f"{answer.placement}: {answer.answer}", markup=False)


def _message(
    verb: Verb, durable: Durable, reason: str, request_id: str | None, slots: list[int] | None
) -> Asked:
    content: dict[str, object] = {
        "actor": durable.actor,
        "reason": reason,
        "request_id": request_id or f"cli-{uuid.uuid4()}",
    }
    if slots:
        content["slots"] = tuple(slots)
    try:
        return _KINDS[verb].model_validate(content)
    except ValidationError as error:
        raise typer.BadParameter(sentences(problems_in(error, _KINDS[verb]))) from None


async def _placements(durable: Durable, target: str) -> list[str]:
    tenant, workload = workload_named(target)
    found = await read_workload(durable.databases, tenant, workload)
    if found is None or found.deleted or not found.share:
        raise RefusedError(
            RefusalCode.WRONG_STATE,
            f"{tenant}/{workload} has no placements now; see `durable get placements`.",
        )
    return [
        placement_id(tenant, workload, found.generation, RegionId(region))
        for region in sorted(found.share)
    ]
