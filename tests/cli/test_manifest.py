"""A manifest is read strictly, and what is wrong in it is told by file, line and field."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable.cli.input.documents import YamlError, read_documents
from durable.cli.input.manifests import MAX_BYTES, ManifestError, load_manifest
from durable.model.fleet import Fleet
from durable.model.ids import RegionId
from durable.model.labels import LabelKey
from durable.model.resources import ZERO, Resources
from durable.validation.value import Value

EXAMPLE = Path(__file__).parents[2] / "examples" / "fleet.yaml"

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


def told(path: Path) -> str:
    with pytest.raises(ManifestError) as caught:
        load_manifest(path, Thing)
    return str(caught.value)


def data_of(text: str) -> object:
    [document] = read_documents(text)
    return document.data


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
            "things.yaml:6: document 1, field parts[1].size.memory: got '1gb'; allowed: a whole "
            "number and a unit out of Ki, Mi, Gi, Ti, M, G, T, such as 512Mi or 1G",
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
def test_a_bad_manifest_is_told_by_file_line_and_field(
    write: Write, text: str | bytes, complaint: str
) -> None:
    assert told(write(text)) == complaint


def test_every_problem_of_every_document_is_told(write: Write) -> None:
    lines = told(write("name: A\ncount: x\n---\nname: b\nsure: 1\n---\n*x\n")).splitlines()
    assert [line.split(": ")[0] for line in lines] == [
        "things.yaml:1",
        "things.yaml:2",
        "things.yaml:5",
        "things.yaml:7",
    ]


def test_a_flood_of_problems_is_cut(write: Write) -> None:
    lines = told(write("---\nname: A\n" * 25)).splitlines()
    assert len(lines) == 21
    assert lines[-1] == "and 5 more"


def test_what_is_no_file_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert told(Path("things.yaml")) == "things.yaml: no such file"
    Path("things.yaml").mkdir()
    assert told(Path("things.yaml")) == "things.yaml: is a directory; name a YAML file"


def test_an_endless_file_is_not_read_to_its_end() -> None:
    assert told(Path("/dev/zero")) == "/dev/zero: larger than 1 MiB; split it"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("-1", -1),
        ("0", 0),
        ("1.5", 1.5),
        ("true", True),
        ("false", False),
        ("null", None),
        ("~", None),
        ("'1'", "1"),
        ('"true"', "true"),
        # YAML 1.1 would have read these as 8, 1000, 90, True, False, a date, 16 and 1000.0.
        ("010", "010"),
        ("1_000", "1_000"),
        ("1:30", "1:30"),
        ("yes", "yes"),
        ("off", "off"),
        ("2030-01-31", "2030-01-31"),
        ("0x10", "0x10"),
        ("1.0e+3", "1.0e+3"),
        ("\uff11", "\uff11"),
        (".inf", ".inf"),
        ("9" * 31, "9" * 31),
    ],
)
def test_a_scalar_is_only_what_it_plainly_is(text: str, value: object) -> None:
    read = data_of(f"x: {text}")
    assert read == {"x": value}
    assert repr(read) == repr({"x": value})


def test_an_entry_without_a_value_is_null() -> None:
    assert data_of("x:\ny: 1") == {"x": None, "y": 1}


def test_depth_and_number_of_documents_are_bounded() -> None:
    assert data_of("[" * 32 + "]" * 32) is not None
    with pytest.raises(YamlError, match="nested deeper than 32 levels"):
        data_of("[" * 33 + "]" * 33)
    with pytest.raises(YamlError, match="nested deeper than 32 levels"):
        data_of("[" * 500_000)
    with pytest.raises(YamlError, match="more than 1000 documents"):
        list(read_documents("---\na\n" * 1_001))


def test_the_number_of_entries_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("durable.cli.input.documents.MAX_ENTRIES", 4)
    assert data_of("[1, 2, 3]") == [1, 2, 3]
    with pytest.raises(YamlError, match="more than 4 entries") as caught:
        data_of("[1, 2,\n3, 4]")
    assert caught.value.line == 2


@given(st.text(alphabet="ab:-[]{}&*!#|>'\"%@` \n\t\x00\x85\u2028", max_size=60))
def test_whatever_the_text_it_is_read_or_refused_with_a_line(text: str) -> None:
    try:
        lines = [document.line_of(()) for document in read_documents(text)]
    except YamlError as error:
        lines = [error.line]
    assert all(1 <= line <= len(text) + 1 for line in lines)


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(10**20), 10**20)
        | st.text("abc \u00e9", max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.text("abcxyz", min_size=1, max_size=5), inner, max_size=3)
        ),
        max_leaves=10,
    )
)
def test_json_is_read_as_what_it_says(data: object) -> None:
    assert data_of(json.dumps(data, ensure_ascii=False)) == data


@pytest.fixture(scope="module")
def example() -> Fleet:
    [fleet] = load_manifest(EXAMPLE, Fleet)
    return fleet


def test_the_example_fleet_has_three_regions_of_three_zones_and_three_shapes(
    example: Fleet,
) -> None:
    assert [region.id for region in example.regions] == ["us-east", "us-west", "eu-central"]
    assert [tenant.id for tenant in example.tenants] == [
        "risk",
        "billing",
        "search",
        "fraud",
        "analytics",
    ]
    for region in example.regions:
        assert len(region.zones) == 3
        shapes = {pool.labels.get(LabelKey("shape")) for pool in region.pools}
        assert {"general", "memory", "gpu"} <= shapes
        assert 30 <= sum(pool.count for pool in region.pools) <= 40
    assert {node.capacity.gpus for node in example.nodes() if node.pool.startswith("gpu")} == {4}


def test_the_example_grants_fit_beside_the_recovery_headroom(example: Fleet) -> None:
    for region in example.regions:
        assert region.recovery_headroom is not None
        granted = sum((tenant.grants[region.id] for tenant in example.tenants), start=ZERO)
        assert (granted + region.recovery_headroom.resources).fits_in(region.capacity)


def test_losing_a_region_of_the_example_leaves_room_for_four_risk_replicas(
    example: Fleet,
) -> None:
    replicas = Resources.model_validate({"cpu": 4, "memory": "8Gi"}) * 4
    risk = example.tenants[0]
    assert not risk.protected.is_zero
    for lost in example.regions:
        for region in example.regions:
            if region is not lost:
                assert region.recovery_headroom is not None
                assert replicas.fits_in(region.recovery_headroom.resources)
                assert replicas.fits_in(risk.grants[region.id])
