"""Manifests: YAML files of values, with problems told by file, line, document and field."""

from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from durable.cli.input.documents import Document, Unreadable, read_documents
from durable.validation.problems import problems_in
from durable.validation.value import Value

MAX_BYTES = 1024**2
_TOLD_AT_MOST = 20

Kind = TypeVar("Kind", bound=Value)


class ManifestError(ValueError):
    """A manifest that cannot be taken as it is; the message is what to show."""


def load_manifest(path: Path, kind: type[Kind]) -> list[Kind]:
    """Every document of the file as a value; nothing when anything in it is wrong."""
    values: list[Kind] = []
    complaints: list[str] = []
    number = 0
    try:
        for number, document in enumerate(read_documents(_text_of(path)), start=1):
            try:
                values.append(kind.model_validate(document.data))
            except ValidationError as error:
                complaints += _complaints(path, number, document, error, kind)
    except Unreadable as error:
        complaints.append(f"{path}:{error.line}: document {number + 1}: {error.sentence}")
    if number == 0 and not complaints:
        raise ManifestError(f"{path}: the file is empty; expected one or more YAML documents")
    if complaints:
        raise ManifestError(_cut(complaints))
    return values


def _text_of(path: Path) -> str:
    try:
        with path.open("rb") as file:
            # One byte more than allowed tells a large file from an endless one alike.
            content = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise ManifestError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise ManifestError(f"{path}: is a directory; name a YAML file") from None
    except OSError as error:
        raise ManifestError(f"{path}: cannot be read: {error.strerror or error}") from None
    if len(content) > MAX_BYTES:
        raise ManifestError(f"{path}: larger than {MAX_BYTES // 1024**2} MiB; split it")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ManifestError(f"{path}:{line}: not UTF-8 text") from None


def _complaints(
    path: Path, number: int, document: Document, error: ValidationError, kind: type[Value]
) -> list[str]:
    problems = problems_in(error, kind)
    return [
        f"{path}:{document.line_of(problem.location)}: document {number}"
        f"{', field ' + problem.path if problem.path else ''}: {problem.message}"
        for problem in problems
    ]


def _cut(complaints: list[str]) -> str:
    rest = len(complaints) - _TOLD_AT_MOST
    return "\n".join(complaints[:_TOLD_AT_MOST] + ([f"and {rest} more"] if rest > 0 else []))
