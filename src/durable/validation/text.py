"""Text from people: reasons in one plain form, and refused values shown back on one line."""

import unicodedata
from reprlib import Repr
from typing import Annotated

from pydantic import AfterValidator, Field, TypeAdapter

_QUOTE_LENGTH = 80
_CUT = "..."

_short = Repr()
_short.maxstring = _short.maxother = _short.maxlong = _QUOTE_LENGTH

MAX_LENGTH = 500


def quote(value: object) -> str:
    """The value as Python would write it, cut to 80 characters."""
    try:
        # A name is shown as what was written, without its kind.
        text = _short.repr(str(value) if isinstance(value, str) else value)
    except ValueError:
        # Python refuses to print integers past some thousand digits.
        return "a number of thousands of digits"
    return text if len(text) <= _QUOTE_LENGTH else text[: _QUOTE_LENGTH - len(_CUT)] + _CUT


def _plain(value: str) -> str:
    hidden = [character for character in value if unicodedata.category(character) in ("Cc", "Cs")]
    if hidden or not value.strip() or unicodedata.normalize("NFC", value) != value:
        raise ValueError(
            f"got {quote(value)}; allowed: 1 to {MAX_LENGTH} characters in normal form C, "
            "not blank, without control characters"
        )
    return value


PlainText = Annotated[str, Field(min_length=1, max_length=MAX_LENGTH), AfterValidator(_plain)]
PLAIN_TEXT: TypeAdapter[str] = TypeAdapter(PlainText)
