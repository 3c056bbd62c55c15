"""Words that people and programs give as reasons: short, in one form, without hidden characters."""

import unicodedata
from typing import Annotated

from pydantic import AfterValidator, Field, TypeAdapter

from durable.validation.quoting import quote

MAX_LENGTH = 500


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
