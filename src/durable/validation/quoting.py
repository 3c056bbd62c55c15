"""How a refused value is shown back: on one line, printable, and never longer than it helps."""

from reprlib import Repr

LIMIT = 80
_CUT = "..."

_short = Repr()
_short.maxstring = _short.maxother = _short.maxlong = LIMIT


def quote(value: object) -> str:
    """The value as Python would write it, cut to 80 characters."""
    try:
        # A name is shown as what was written, without its kind.
        text = _short.repr(str(value) if isinstance(value, str) else value)
    except ValueError:
        # Python refuses to print integers past some thousand digits.
        return "a number of thousands of digits"
    return text if len(text) <= LIMIT else text[: LIMIT - len(_CUT)] + _CUT
