"""Labels, which work may require of a node, and taints, which keep work off it."""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from durable.model.ids import Identifier
from durable.validation.value import Value


class LabelKey(Identifier):
    __slots__ = ()

    pattern = re.compile("[a-z0-9](?:[a-z0-9._/-]*[a-z0-9])?")
    allowed = (
        "1 to 63 characters of a-z, 0-9, '-', '.', '_' and '/', "
        "starting and ending with a letter or digit"
    )


class LabelValue(Identifier):
    __slots__ = ()

    pattern = re.compile("(?:[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)?")
    allowed = (
        "up to 63 characters of a-z, A-Z, 0-9, '-', '.' and '_', "
        "starting and ending with a letter or digit, or nothing"
    )


Labels = Annotated[Mapping[LabelKey, LabelValue], Field(max_length=32)]


class TaintEffect(StrEnum):
    NO_SCHEDULE = "no-schedule"
    PREFER_NO_SCHEDULE = "prefer-no-schedule"


class Taint(Value):
    """Keeps work off a node unless the work tolerates it by name; or asks it to prefer others."""

    key: LabelKey
    value: LabelValue
    effect: TaintEffect
