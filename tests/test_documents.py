"""Links between documents, and from documents to the code, lead somewhere."""

import re
from pathlib import Path

import pytest

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
