"""`durable sign`: a message's payload with its signature, to be pasted into the Temporal UI."""

import json
import uuid
from typing import Annotated, Any, cast

import typer
from pydantic import ValidationError

from durable.cli.connections import current_user, with_authority
from durable.cli.input.options import AsJson, StateDir, load_settings
from durable.model.ids import ActorId
from durable.model.refusal import RefusalCode, RefusedError
from durable.signals.names import kind_of
from durable.signals.registry import Message, Sender, messages_to
from durable.temporal.signing import key_path, read_key, signer_of
from durable.validation.problems import problems_in, sentences


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
    """Print a message's payload signed with your key, to paste into the Temporal UI."""
    del as_json  # it prints nothing else
    offered = _find(workflow_id, message)
    payload = {"actor": current_user(), "request_id": f"ui-{uuid.uuid4()}", **_object(content)}
    try:
        offered.payload.model_validate_json(json.dumps(payload))
    except ValidationError as error:
        raise typer.BadParameter(
            sentences(problems_in(error, offered.payload)), param_hint="JSON"
        ) from None
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


def _find(workflow_id: str, name: str) -> Message:
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
