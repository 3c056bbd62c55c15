"""YAML documents: a scalar is what it plainly is, and everything is bounded."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable.cli.input.documents import YamlError, read_documents


def data_of(text: str) -> object:
    [document] = read_documents(text)
    return document.data


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("-1", -1),
        ("0", 0),
        ("1.5", 1.5),
        # More digits than a float can hold.
        ("0.50000000000000000001", "0.50000000000000000001"),
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
