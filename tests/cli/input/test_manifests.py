"""A manifest is read strictly, and its problems are reported by file, line and field."""

from collections.abc import Callable
from pathlib import Path

import pytest

from durable.cli.input.manifests import MAX_BYTES, ManifestError, load_manifest
from durable.model.ids import RegionId
from durable.model.resources import Resources
from durable.validation.value import Value

Write = Callable[[str | bytes], Path]


class Part(Value):
    size: Resources
    name: RegionId | None = None


class Thing(Value):
    name: RegionId
    count: int = 0
    note: str = ""
    sure: bool = False
    parts: tuple[Part, ...] = ()


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    monkeypatch.chdir(tmp_path)

    def write_file(content: str | bytes) -> Path:
        Path("things.yaml").write_bytes(content if isinstance(content, bytes) else content.encode())
        return Path("things.yaml")

    return write_file


def problems_of(path: Path) -> str:
    with pytest.raises(ManifestError) as caught:
        load_manifest(path, Thing)
    return str(caught.value)


def test_every_document_becomes_a_value(write: Write) -> None:
    text = "# things\nname: a\nparts:\n  - size: {cpu: 500m, memory: 1Gi}\n---\nname: b\ncount: 2\n"
    first, second = load_manifest(write(text), Thing)
    assert first == Thing(name=RegionId("a"), parts=(Part(size=Resources.of(500, 1024)),))
    assert second == Thing(name=RegionId("b"), count=2)


def test_a_byte_order_mark_is_no_part_of_the_text(write: Write) -> None:
    assert load_manifest(write(b"\xef\xbb\xbfname: a\n"), Thing) == [Thing(name=RegionId("a"))]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (
            "name: a\nparts:\n  - size: {cpu: 1}\n  - size:\n      cpu: 1\n      memory: 1gb\n",
            "things.yaml:6: document 1, field parts[1].size.memory: got '1gb'; allowed: a number "
            "and one of the units Ki, Mi, Gi, Ti, M, G, T, such as 512Mi or 1.5Gi",
        ),
        (
            "name: a\n---\nname: b\ncuont: 1\n",
            "things.yaml:4: document 2, field cuont: unknown field 'cuont'; known fields: "
            "name, count, note, sure, parts; did you mean count?",
        ),
        ("\n\ncount: 1\n", "things.yaml:3: document 1, field name: is missing; it must be given"),
        (
            "name: a\nparts:\n  -\n    name: b\n",
            "things.yaml:4: document 1, field parts[0].size: is missing; it must be given",
        ),
        (
            "name: a\nparts:\n\n  x: 1\n",
            "things.yaml:2: document 1, field parts: got {'x': 1}; allowed: a list",
        ),
        (
            "- name: a\n",
            "things.yaml:1: document 1: got [{'name': 'a'}]; allowed: a mapping with the fields "
            "name, count, note, sure, parts",
        ),
        (
            "name: a\n---\n",
            "things.yaml:3: document 2: got None; allowed: a mapping with the fields "
            "name, count, note, sure, parts",
        ),
        (
            "name: a\ncount: 1\nname: b\n",
            "things.yaml:3: document 1: field name is set twice, first on line 1",
        ),
        (
            "name: a\nparts: [{size: {cpu: 1, cpu: 2}}]\n",
            "things.yaml:2: document 1: field parts[0].size.cpu is set twice, first on line 2",
        ),
        (
            "name: a\nparts:\n\t- x\n",
            "things.yaml:3: document 1: found a tab; indent with spaces",
        ),
        (
            "name: &x a\nnote: *x\n",
            "things.yaml:1: document 1: anchors (&name) and aliases (*name) are not supported; "
            "write the value out",
        ),
        (
            "name: a\nnote: !!python/object/apply:os.system [ls]\n",
            "things.yaml:2: document 1: tags such as 'tag:yaml.org,2002:python/object/apply:"
            "os.system' are not supported; omit it",
        ),
        (
            "name: a\n[x]: 1\n",
            "things.yaml:2: document 1: a key must be plain text, not a list or a mapping",
        ),
        (
            'name: a\nnote: "x\n',
            "things.yaml:3: document 1: found unexpected end of stream",
        ),
        (
            "name: a\nnote: 'x\x07y'\n",
            "things.yaml:2: document 1: the character '\\x07' is not allowed in YAML",
        ),
        ("", "things.yaml: the file is empty; expected one or more YAML documents"),
        ("# nothing\n\n", "things.yaml: the file is empty; expected one or more YAML documents"),
        (b"name: a\nnote: \xff\xfe\n", "things.yaml:2: not UTF-8 text"),
        (b"name: a\n" + b"#" * MAX_BYTES, "things.yaml: larger than 1 MiB; split it"),
    ],
)
def test_a_problem_is_reported_by_file_line_and_field(
    write: Write, text: str | bytes, complaint: str
) -> None:
    assert problems_of(write(text)) == complaint


def test_every_problem_of_every_document_is_reported(write: Write) -> None:
    lines = problems_of(write("name: A\ncount: x\n---\nname: b\nsure: 1\n---\n*x\n")).splitlines()
    assert [line.split(": ")[0] for line in lines] == [
        "things.yaml:1",
        "things.yaml:2",
        "things.yaml:5",
        "things.yaml:7",
    ]


def test_at_most_twenty_problems_are_reported(write: Write) -> None:
    lines = problems_of(write("---\nname: A\n" * 25)).splitlines()
    assert len(lines) == 21
    assert lines[-1] == "and 5 more"


def test_a_path_that_is_no_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert problems_of(Path("things.yaml")) == "things.yaml: no such file"
    Path("things.yaml").mkdir()
    assert problems_of(Path("things.yaml")) == "things.yaml: is a directory; name a YAML file"


def test_an_endless_file_is_not_read_to_its_end() -> None:
    assert problems_of(Path("/dev/zero")) == "/dev/zero: larger than 1 MiB; split it"
