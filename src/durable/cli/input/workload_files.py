"""The workloads that files and folders on the command line declare, all read before any is sent."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from durable.cli.input.manifest import ManifestError, load_manifest
from durable.model.workload import WorkloadManifest

ENDINGS = (".yaml", ".yml")
MAX_FILES = 1_000

Files = Annotated[
    list[Path],
    typer.Option(
        "--file", "-f", help="A manifest of workloads (YAML), or a folder of them; repeatable."
    ),
]


def load_workloads(paths: Sequence[Path]) -> list[WorkloadManifest]:
    """Every workload of these files, or all that is wrong with them."""
    manifests: list[WorkloadManifest] = []
    complaints: list[str] = []
    named: dict[tuple[str, str], Path] = {}
    for file in _files(paths):
        try:
            found = load_manifest(file, WorkloadManifest)
        except ManifestError as error:
            complaints.append(str(error))
            continue
        for manifest in found:
            key = (manifest.tenant, manifest.name)
            if key in named:
                complaints.append(
                    f"{file}: {key[0]}/{key[1]} is declared twice, first in {named[key]}"
                )
            named.setdefault(key, file)
            manifests.append(manifest)
    if complaints:
        raise ManifestError("\n".join(complaints))
    return manifests


def _files(paths: Sequence[Path]) -> Iterable[Path]:
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        inside = sorted(child for child in path.iterdir() if child.suffix in ENDINGS)
        if not inside:
            raise ManifestError(f"{path}: the folder holds no .yaml file")
        if len(inside) > MAX_FILES:
            raise ManifestError(f"{path}: the folder holds more than {MAX_FILES:,} files; split it")
        yield from inside
