"""Links between documents, and from documents to the code, lead somewhere."""

import re
from pathlib import Path

import pytest

from durable.model.operators.rights import Verb
from durable.model.policy.policy import Policy

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted(
    path
    for folder in (".", "docs", "docs/decisions", "runbooks")
    for path in (ROOT / folder).glob("*.md")
)
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")


def anchors(document: Path) -> set[str]:
    """The headings as GitHub turns them into anchors."""
    headings = re.findall(r"^#+ (.+)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_somewhere(document: Path) -> None:
    for path, anchor in LINK.findall(document.read_text()):
        target = document.parent / path if path else document
        assert target.exists(), path
        assert not anchor or anchor in anchors(target), f"{path}#{anchor}"


@pytest.mark.parametrize(
    "runbook", sorted((ROOT / "runbooks").glob("*.md")), ids=lambda path: path.stem
)
def test_every_runbook_has_the_same_sections(runbook: Path) -> None:
    headings = re.findall(r"^## (.+)$", runbook.read_text(), re.MULTILINE)
    assert headings == ["Symptom", "Meaning", "Look", "Act", "Verify", "Afterwards"]


def test_the_page_about_operators_names_every_verb_and_what_must_be_signed() -> None:
    page = (ROOT / "docs" / "operators.md").read_text()
    rows = re.findall(r"^\| (`[a-z-]+`(?:, `[a-z-]+`)*) \| .*$", page, re.MULTILINE)
    listed = [verb for row in rows for verb in re.findall(r"`([a-z-]+)`", row)]
    assert listed == [verb.value for verb in Verb]
    signed = Policy.model_fields["signed_verbs"].default
    assert (
        "by default "
        + " and ".join([", ".join(f"`{verb}`" for verb in signed[:-1]), f"`{signed[-1]}`"])
        in page
    )
