"""What options mean: their text read as values."""

from collections.abc import Callable
from typing import TypeVar

import typer
from pydantic import ValidationError

Given = TypeVar("Given")
Meant = TypeVar("Meant")


def parsed(option: str, read: Callable[[Given], Meant], given: Given) -> Meant:
    """What the text means, or one sentence that names the option."""
    try:
        return read(given)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]["msg"].removeprefix("Value error, ")
        raise typer.BadParameter(problem, param_hint=option) from None
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None
