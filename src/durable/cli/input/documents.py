"""Parses a small, safe subset of YAML into plain data that remembers its line numbers."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, cast

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from durable.validation.problems import Location, dotted
from durable.validation.text import quote

MAX_DEPTH = 32
MAX_DOCUMENTS = 1_000
MAX_ENTRIES = 100_000

_TAG = "tag:yaml.org,2002:"
_CONSTANTS = {"true": True, "false": False, "null": None, "~": None, "": None}
# No guesses of YAML 1.1: `010`, `1_000`, `1:30`, `yes` and dates stay text.
_RESOLVERS = {
    None: [
        (f"{_TAG}constant", re.compile("(?:true|false|null|~|)\\Z")),
        (f"{_TAG}int", re.compile("-?(?:0|[1-9][0-9]{0,29})\\Z")),
        (f"{_TAG}float", re.compile("-?(?:0|[1-9][0-9]{0,29})\\.[0-9]{1,30}\\Z")),
    ]
}


class YamlError(ValueError):
    """Text outside this subset of YAML, and the line where it leaves it."""

    def __init__(self, line: int, sentence: str) -> None:
        super().__init__(sentence)
        self.line = line
        self.sentence = sentence


@dataclass(slots=True)
class Document:
    """One document's data, with the line of every entry in it."""

    data: Any = None
    lines: dict[Location, int] = field(default_factory=dict[Location, int])

    def line_of(self, location: Location) -> int:
        """The line of the entry, or of the nearest enclosing one that was written."""
        while location and location not in self.lines:
            location = location[:-1]
        return self.lines[location]


class _Loader(yaml.SafeLoader):
    """Composes nodes, without the features that make a small file expand or nest deeply."""

    yaml_implicit_resolvers = _RESOLVERS
    depth = 0
    entries = 0

    def compose_node(self, parent: Node | None, index: int) -> Node | None:
        parser: Any = self
        event = parser.peek_event()
        line = event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent) or event.anchor is not None:
            sentence = "anchors (&name) and aliases (*name) are not supported; write the value out"
            raise YamlError(line, sentence)
        if event.tag is not None:
            raise YamlError(line, f"tags such as {quote(event.tag)} are not supported; omit it")
        if self.depth == MAX_DEPTH:
            raise YamlError(line, f"nested deeper than {MAX_DEPTH} levels")
        if self.entries == MAX_ENTRIES:
            raise YamlError(line, f"more than {MAX_ENTRIES} entries")
        self.entries += 1
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


def read_documents(text: str) -> Iterator[Document]:
    """Yields documents one by one, so that a bad one does not hide those before it."""
    try:
        loader = _Loader(text)
        for count, node in enumerate(_nodes(loader)):
            if count == MAX_DOCUMENTS:
                raise YamlError(_line(node), f"more than {MAX_DOCUMENTS} documents")
            document = Document()
            document.data = _plain(node, (), document.lines)
            yield document
    except yaml.MarkedYAMLError as error:
        raise _yaml_error(error) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        character = quote(text[error.position : error.position + 1])
        raise YamlError(line, f"the character {character} is not allowed in YAML") from error


def _nodes(loader: _Loader) -> Iterator[Node]:
    while loader.check_node():
        yield cast(Node, loader.get_node())


def _plain(node: Node, location: Location, lines: dict[Location, int]) -> Any:
    lines[location] = _line(node)
    if isinstance(node, MappingNode):
        return _mapping(node, location, lines)
    if isinstance(node, SequenceNode):
        items: list[Node] = node.value
        return [_plain(item, (*location, index), lines) for index, item in enumerate(items)]
    return _scalar(node)


def _mapping(node: MappingNode, location: Location, lines: dict[Location, int]) -> dict[str, Any]:
    data: dict[str, Any] = {}
    entries: list[tuple[Node, Node]] = node.value
    for key_node, value_node in entries:
        key = key_node.value if isinstance(key_node, ScalarNode) else None
        if not isinstance(key, str):
            raise YamlError(_line(key_node), "a key must be plain text, not a list or a mapping")
        path = (*location, key)
        if key in data:
            sentence = f"field {dotted(path)} is set twice, first on line {lines[path]}"
            raise YamlError(_line(key_node), sentence)
        data[key] = _plain(value_node, path, lines)
        lines[path] = _line(key_node)
    return data


def _scalar(node: Node) -> Any:
    text: str = node.value
    kind = node.tag.removeprefix(_TAG)
    if kind == "constant":
        return _CONSTANTS[text]
    if kind == "int":
        return int(text)
    if kind == "float" and Decimal(text) == Decimal(repr(float(text))):
        return float(text)
    # More digits than a float has: as text, so that nothing is read that was not written.
    return text


def _yaml_error(error: yaml.MarkedYAMLError) -> YamlError:
    mark = error.problem_mark or error.context_mark
    problem = error.problem or "this is not YAML"
    if "'\\t'" in problem:
        problem = "found a tab; indent with spaces"
    return YamlError(mark.line + 1 if mark else 1, problem)


def _line(node: Node) -> int:
    return node.start_mark.line + 1
