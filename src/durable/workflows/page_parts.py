"""What the pages of workflows in the Temporal UI are made of."""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Protocol
from urllib.parse import quote

from durable.model.operators.rights import Verb
from durable.signals.registry import Sender, messages_to
from durable.signals.status import MessageRecord
from durable.validation.text import show_moment

REJECTED_SHOWN = 5
EXAMPLE_CHARACTERS_SHOWN = 2_000
# Of what others wrote, and of what they were answered: to its end, where it says what to do next.
CHARACTERS_SHOWN = 200
ANSWER_SHOWN = 500

# What Markdown would take for a link, an emphasis, code or a tag.
_MARKUP = re.compile(r"([\\`*_\[\]<>|])")


class HasRejected(Protocol):
    """A status that says which messages changed nothing."""

    @property
    def rejected(self) -> tuple[MessageRecord, ...]: ...

    @property
    def rejected_count(self) -> int: ...


def link(workflow: str) -> str:
    """To the page of another workflow, wherever the UI is served and whatever the namespace."""
    return f"[{workflow}](/namespaces/{{namespace}}/workflows/{quote(workflow, safe='')})"


def paragraphs(lines: Sequence[str]) -> str:
    """Lines of a list together, everything else apart, or Markdown would join it."""
    text = lines[0]
    for before, line in pairwise(lines):
        text += "\n" if before.startswith("- ") and line.startswith("- ") else "\n\n"
        text += line
    return text


def rejected_lines(status: HasRejected) -> list[str]:
    if not status.rejected:
        return []
    last = status.rejected[-REJECTED_SHOWN:]
    shown = [f"- {moment(one.at)} `{one.name}`: {line(one.answer, ANSWER_SHOWN)}" for one in last]
    return [f"### Messages that changed nothing ({status.rejected_count})", *shown]


def examples(
    workflow: str,
    request_id: str,
    own: Mapping[str, Mapping[str, Any]],
    for_now: Sequence[str] = (),
    *,
    signed_to: str | None = None,
    verbs: Mapping[str, Verb] = MappingProxyType({}),
) -> list[str]:
    """Every message with a payload that can be pasted; `own` has this workflow's fields.

    Those that make sense now come first, if anybody knows which these are. `signed_to` is the id of
    a workflow whose messages a policy may want signed; `verbs` has the rights that depend on what
    the workflow is about.
    """
    shown: list[str] = []
    order = {name: place for place, name in enumerate(for_now)}
    messages = messages_to(workflow, sender=Sender.PERSON)
    for message in sorted(messages, key=lambda one: order.get(one.name, len(order))):
        fresh = {"request_id": f"{request_id}-{message.name}"}
        example = {**message.example, **fresh, **own.get(message.name, {})}
        payload = json.dumps(example)
        can_show = len(payload) <= EXAMPLE_CHARACTERS_SHOWN
        pasted = f" `{payload}`" if can_show else ""
        right = verbs.get(message.name, message.verb)
        shown.append(f"- `{message.name}`: {message.sentence} Needs the right `{right}`.{pasted}")
    head = ["### Messages: send as update or signal, each under its own request_id"]
    if signed_to is not None:
        head.append(
            "Where the policy demands a signature, paste what this prints instead: "
            f"`durable sign {signed_to} {for_now[0] if for_now else 'MESSAGE'} 'JSON'`"
        )
    if not for_now:
        return [*head, *shown]
    now, later = shown[: len(for_now)], shown[len(for_now) :]
    return [*head, *now, "### Other messages", *later]


def moment(at: datetime | None) -> str:
    return "none" if at is None else show_moment(at)


def line(text: str, most: int = CHARACTERS_SHOWN) -> str:
    """What others wrote, on one line, without effect on the page."""
    cut = text if len(text) <= most else f"{text[: most - 1]}…"
    return _MARKUP.sub(r"\\\1", cut.replace("\n", " "))
