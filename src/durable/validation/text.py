"""Text from people: reasons in one plain form, and refused values shown back on one line."""

import unicodedata
from datetime import UTC, datetime
from reprlib import Repr
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, TypeAdapter

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


def shorten(text: str) -> str:
    """At most as much as a sentence or a reason may have; what is cut off is marked."""
    return text if len(text) <= MAX_LENGTH else text[: MAX_LENGTH - len(_CUT)] + _CUT


def cut_bytes(text: str, most: int) -> str:
    """At most so many bytes of it, as it travels: a character may be four of them."""
    return text.encode()[:most].decode(errors="ignore")


def show_moment(at: datetime) -> str:
    """`2026-03-01 12:00:00Z`, wherever the reader and the clock are."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"


def show_clock(at: datetime) -> str:
    """`12:00:00Z`, where the day is plain."""
    return f"{at.astimezone(UTC):%H:%M:%S}Z"


def counted(count: int, noun: str) -> str:
    """`1 slot`, `2 slots`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def read_plain_text(value: str) -> str:
    """Text that a reason may have; a ValueError says what is allowed."""
    hidden = [character for character in value if unicodedata.category(character) in ("Cc", "Cs")]
    is_long = len(value) > MAX_LENGTH
    if hidden or is_long or not value.strip() or unicodedata.normalize("NFC", value) != value:
        raise ValueError(
            f"got {quote(value)}; allowed: 1 to {MAX_LENGTH} characters in normal form C, "
            "not blank, without control characters"
        )
    return value


def _shorten_text(value: object) -> object:
    return shorten(value) if isinstance(value, str) else value


# What people read; a longer one is cut where it is made into a value, so that no caller has to.
Sentence = Annotated[str, Field(max_length=MAX_LENGTH), BeforeValidator(_shorten_text)]

PlainText = Annotated[
    str, Field(min_length=1, max_length=MAX_LENGTH), AfterValidator(read_plain_text)
]
PLAIN_TEXT: TypeAdapter[str] = TypeAdapter(PlainText)
