"""Text of others, made visible: what came from a message, a file or a node never drives a terminal.

Control characters, ESC sequences and marks that turn the direction of writing could forge lines,
hide part of a sentence or recolour the screen. They are shown as Python would write them.
"""

import json
import re
from typing import Any

from rich.console import Console
from rich.text import Text

# Control characters but tab and newline; what joins, turns or breaks lines unseen; lone surrogates,
# which no terminal could be sent.
_HIDDEN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    r"\ud800-\udfff]"
)
_BREAKS = re.compile(r"[\t\n]")


def visible(text: str) -> str:
    """The text with everything hidden written out; its lines stay lines."""
    return _HIDDEN.sub(_written, text)


def in_one_cell(text: str) -> str:
    """The same on one line, for what must not begin another."""
    return _BREAKS.sub(_written, visible(text))


def visible_json(text: str) -> str:
    """JSON that says the same in characters that can all be seen."""
    return _HIDDEN.sub(lambda found: json.dumps(found[0])[1:-1], text)


def _written(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


class VisibleConsole(Console):
    """A console that shows all text, also that of table cells, in visible characters."""

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(visible(text), **options)
