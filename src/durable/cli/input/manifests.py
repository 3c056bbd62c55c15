"""Manifests: YAML files read into values, with problems reported by file, line and field."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import ValidationError

from durable.cli.input.documents import Document, YamlError, read_documents
from durable.cli.input.options import path_option
from durable.model.work.workload import WorkloadManifest
from durable.validation.problems import Location, dotted, problems_in
from durable.validation.value import Value

MAX_BYTES = 1024**2
MAX_FILES = 1_000
ENDINGS = (".yaml", ".yml")
MAX_PROBLEMS = 20

Files = Annotated[
    list[Path],
    path_option(
        "--file", "-f", help="A YAML file of workloads, or a directory of them; repeatable."
    ),
]

Kind = TypeVar("Kind", bound=Value)


class ManifestError(ValueError):
    """A manifest that cannot be used; the message lists its problems."""


def load_manifest(
    path: Path,
    kind: type[Kind],
    check: Callable[[Kind], Sequence[tuple[Location, str]]] = lambda _: (),
) -> list[Kind]:
    """Every document of the file as a value; one problem anywhere rejects the whole file.

    `check` finds what no type can, each with its place in the document.
    """
    values: list[Kind] = []
    problems: list[str] = []
    number = 0
    try:
        for number, document in enumerate(read_documents(_text_of(path)), start=1):
            try:
                value = kind.model_validate(document.data)
                values.append(value)
                problems += [
                    f"{path}:{document.line_of(where)}: document {number}, field "
                    f"{dotted(where)}: {what}"
                    for where, what in check(value)
                ]
            except ValidationError as error:
                problems += _describe(path, number, document, error, kind)
    except YamlError as error:
        problems.append(f"{path}:{error.line}: document {number + 1}: {error.sentence}")
    if number == 0 and not problems:
        raise ManifestError(f"{path}: the file is empty; expected one or more YAML documents")
    if problems:
        raise ManifestError(_shorten(problems))
    return values


def load_workloads(paths: Sequence[Path]) -> list[WorkloadManifest]:
    """Every workload of these files and directories, read and checked before any is sent."""
    manifests: list[WorkloadManifest] = []
    problems: list[str] = []
    first_files: dict[tuple[str, str], Path] = {}
    for file in _files(paths):
        try:
            found = load_manifest(file, WorkloadManifest)
        except ManifestError as error:
            problems.append(str(error))
            continue
        for manifest in found:
            key = (manifest.tenant, manifest.name)
            if key in first_files:
                problems.append(
                    f"{file}: {key[0]}/{key[1]} is declared twice, first in {first_files[key]}"
                )
            first_files.setdefault(key, file)
            manifests.append(manifest)
    if problems:
        raise ManifestError("\n".join(problems))
    return manifests


def _files(paths: Sequence[Path]) -> Iterable[Path]:
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        children = sorted(child for child in path.iterdir() if child.suffix in ENDINGS)
        if not children:
            raise ManifestError(f"{path}: no .yaml file in the directory")
        if len(children) > MAX_FILES:
            raise ManifestError(f"{path}: more than {MAX_FILES:,} files in the directory; split it")
        yield from children


def _text_of(path: Path) -> str:
    try:
        with path.open("rb") as file:
            # One byte more than allowed shows that a file is too large, even an endless one.
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


def _describe(
    path: Path, number: int, document: Document, error: ValidationError, kind: type[Value]
) -> list[str]:
    return [
        f"{path}:{document.line_of(problem.location)}: document {number}"
        f"{', field ' + problem.path if problem.path else ''}: {problem.message}"
        for problem in problems_in(error, kind)
    ]


def _shorten(problems: list[str]) -> str:
    rest = len(problems) - MAX_PROBLEMS
    return "\n".join(problems[:MAX_PROBLEMS] + ([f"and {rest} more"] if rest > 0 else []))
