"""A report: made once from a status, printed as Markdown on a page and as text in a terminal.

Its lines have a few marks: strong words, code, and links to other workflows; what others wrote is
escaped by `line`. The text is the same without them.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import Any, Protocol
from urllib.parse import quote

from durable.model.operators.rights import Verb
from durable.signals.registry import Sender, messages_to
from durable.signals.status import MessageRecord
from durable.validation.text import show_moment

REJECTED_SHOWN = 5
ITEMS_SHOWN = 20
EXAMPLE_CHARACTERS_SHOWN = 2_000
# Of what others wrote; and to its end what says what to do next: answers and reasons.
CHARACTERS_SHOWN = 200
SENTENCE_SHOWN = 500

# Code, which has no effect on a page and stays code, so that a command in a sentence can be pasted;
# and what Markdown would take for a link, an emphasis, code or a tag.
_MARKUP = re.compile(r"((?<!`)`[^`]+`(?!`))|([\\`*_\[\]<>|])")
# Code stays as it is; what was escaped and links are read as words, and emphasis is left out.
_MARKS = re.compile(r"(`[^`]*`)|\\([\\`*_\[\]<>|])|\[([^\]]+)\]\(/namespaces/[^)]*\)|\*\*")


class HasRejected(Protocol):
    """A status that says which messages changed nothing."""

    @property
    def rejected(self) -> tuple[MessageRecord, ...]: ...

    @property
    def rejected_count(self) -> int: ...


@dataclass(frozen=True)
class Section:
    """Lines under a title; an item of a list begins with a dash."""

    title: str
    lines: tuple[str, ...]
    # The same as a table, heads first, where there is room for one.
    table: tuple[Sequence[str], ...] = ()


@dataclass(frozen=True)
class Offer:
    """The messages that it accepts."""

    kind: str
    # Those that make sense now, the likeliest first; empty if that is not known.
    for_now: Sequence[str] = ()
    # Fields of examples that only this one has.
    own: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    # The id of a workflow whose messages a policy may want signed.
    signed_to: str | None = None
    # Rights that depend on what it is about.
    verbs: Mapping[str, Verb] = field(default_factory=dict[str, Verb])


@dataclass(frozen=True)
class Report:
    """What there is to say of one thing."""

    title: str
    lines: tuple[str, ...]
    sections: tuple[Section, ...]
    offer: Offer
    status: HasRejected
    # One line that differs whenever something has changed, for those who follow it.
    summary: str = ""

    def as_markdown(self, request_id: str) -> str:
        """`request_id` is one that no message had yet, so that the examples work when pasted."""
        sections = [line for one in self.sections for line in (f"### {one.title}", *one.lines)]
        end = [*_rejected(self.status), *_examples(self.offer, request_id)]
        return _paragraphs([f"## {self.title}", *self.lines, *sections, *end])


def plain(text: str) -> str:
    """The same without marks."""
    return _MARKS.sub(lambda mark: mark[1] or mark[2] or mark[3] or "", text)


def line(text: str, most: int = CHARACTERS_SHOWN) -> str:
    """What others wrote, on one line, without effect on the page."""
    cut = text if len(text) <= most else f"{text[: most - 1]}…"
    return _MARKUP.sub(lambda mark: mark[1] or f"\\{mark[2]}", cut.replace("\n", " "))


def link(workflow: str) -> str:
    """To the page of another workflow, wherever the UI is served and whatever the namespace."""
    return f"[{workflow}](/namespaces/{{namespace}}/workflows/{quote(workflow, safe='')})"


def moment(at: datetime | None) -> str:
    return "none" if at is None else show_moment(at)


def waits(*reasons: str) -> tuple[str, ...]:
    """One line for each reason that there is."""
    return tuple(f"**Waits**: {line(reason)}" for reason in reasons if reason)


def listed(
    title: str,
    items: Sequence[str],
    more: int = 0,
    see: str = "",
    table: tuple[Sequence[str], ...] = (),
) -> tuple[Section, ...]:
    """A section with these items and how many there are besides; none without items."""
    if not items:
        return ()
    rest = [f"- and {more} more: {see}"] if more else []
    return (Section(title, (*(f"- {item}" for item in items), *rest), table),)


def _paragraphs(lines: Sequence[str]) -> str:
    """Lines of a list together, everything else apart, or Markdown would join it."""
    text = lines[0]
    for before, line in pairwise(lines):
        text += "\n" if before.startswith("- ") and line.startswith("- ") else "\n\n"
        text += line
    return text


def _rejected(status: HasRejected) -> list[str]:
    if not status.rejected:
        return []
    last = status.rejected[-REJECTED_SHOWN:]
    shown = [f"- {moment(one.at)} `{one.name}`: {line(one.answer, SENTENCE_SHOWN)}" for one in last]
    return [f"### Messages that changed nothing ({status.rejected_count})", *shown]


def _examples(offer: Offer, request_id: str) -> list[str]:
    """Every message with a payload that can be pasted; those that make sense now come first."""
    shown: list[str] = []
    order = {name: place for place, name in enumerate(offer.for_now)}
    messages = messages_to(offer.kind, sender=Sender.PERSON)
    for message in sorted(messages, key=lambda one: order.get(one.name, len(order))):
        fresh = {"request_id": f"{request_id}-{message.name}"}
        payload = json.dumps({**message.example, **fresh, **offer.own.get(message.name, {})})
        pasted = f" `{payload}`" if len(payload) <= EXAMPLE_CHARACTERS_SHOWN else ""
        right = offer.verbs.get(message.name, message.verb)
        shown.append(f"- `{message.name}`: {message.sentence} Needs the right `{right}`.{pasted}")
    head = ["### Messages: send as update or signal, each under its own request_id"]
    if offer.signed_to is not None:
        first = offer.for_now[0] if offer.for_now else "MESSAGE"
        head.append(
            "Where the policy demands a signature, paste what this prints instead: "
            f"`durable sign {offer.signed_to} {first} 'JSON'`"
        )
    if not offer.for_now:
        return [*head, *shown]
    now, later = shown[: len(offer.for_now)], shown[len(offer.for_now) :]
    return [*head, *now, "### Other messages", *later]
