"""docs/errors.md has every code that a program may read, and no other."""

import re
from pathlib import Path

from durable.model.refusal import RefusalCode

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "errors.md").read_text()
# What commands say beside the codes of refusals.
SAID = re.compile(
    r"(?:error_object\(\s*|(?:REFUSED|USAGE), |code(?:: str)? ?= ?)\"([a-z_]+)\""
    r"(?: if [^\n]* else \"([a-z_]+)\")?"
)


def said_by_commands() -> set[str]:
    sources = (ROOT / "src" / "durable" / "cli").rglob("*.py")
    found = [SAID.findall(source.read_text()) for source in sources]
    return {code for pairs in found for pair in pairs for code in pair if code}


def test_every_code_is_explained_and_no_other() -> None:
    rows = re.findall(r"^\| (`[a-z_`, ]+`) \|", TEXT, re.MULTILINE)
    documented = [code for row in rows for code in re.findall(r"`([a-z_]+)`", row)]
    assert len(documented) == len(set(documented))
    message = said_by_commands()
    assert {"usage", "stack", "unhealthy", "unexpected"} <= message
    assert set(documented) == message | {code.value for code in RefusalCode}
