"""Heads of the audit that are kept outside the database, one line each; a chain's last one counts.

A line has the time and the head, so that a file that is only ever appended to tells its own story.
"""

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import typer

from durable.authority.audit.chain import ChainHead

_HEAD = re.compile(r"([a-z0-9-]+):([0-9]{1,18}):((?:[0-9a-f]{64})?)")


def parse_head(text: str) -> ChainHead:
    """A head as `durable audit head` prints it."""
    match = _HEAD.fullmatch(text)
    if match is None:
        raise ValueError(
            f"{text!r} is not a head; give CHAIN:SEQUENCE:HASH as `durable audit head` prints it"
        )
    return ChainHead(match[1], int(match[2]), match[3])


def read_anchors(file: Path) -> dict[str, ChainHead]:
    """The last head of each chain."""
    try:
        lines = file.read_text().splitlines()
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"{file} cannot be read: {error}", param_hint="FILE") from None
    anchors: dict[str, ChainHead] = {}
    for number, line in enumerate(lines, start=1):
        try:
            head = parse_head(line.rpartition(" ")[2])
        except ValueError as error:
            where = f"line {number} of {file}: {error}"
            raise typer.BadParameter(where, param_hint="FILE") from None
        anchors[head.chain] = head
    return anchors


def append_anchors(file: Path, heads: Iterable[ChainHead]) -> None:
    """Adds a line for each head."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    try:
        with file.open("a") as out:
            out.writelines(f"{now} {head}\n" for head in heads)
    except OSError as error:
        raise typer.BadParameter(f"{file} cannot be written: {error}", param_hint="FILE") from None
