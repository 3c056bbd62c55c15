"""A job says how much must be done, how much at once and until when; a contradiction is refused."""

from pathlib import Path
from typing import Any

import pytest

from durable.cli.input.manifests import ManifestError, load_manifest
from durable.model.work.workload import WorkloadManifest, WorkloadSpec

JOB: dict[str, Any] = {"kind": "job", "resources": {"cpu": 1}}


def spec(**fields: Any) -> WorkloadSpec:
    return WorkloadSpec.model_validate({**JOB, **fields})


def test_completions_say_how_many_replicas_there_are() -> None:
    assert spec(job={"completions": 7}).replicas == 7
    assert spec(replicas=7, job={"completions": 7}).replicas == 7
    assert spec(replicas=7).replicas == 7


def test_what_was_read_is_read_again_from_what_it_writes() -> None:
    job = {"completions": 7, "parallelism": 2, "deadline": "90m", "fatal_exit_codes": [3]}
    read = spec(job=job)
    assert WorkloadSpec.model_validate(read.model_dump(mode="json")) == read
    assert WorkloadSpec.read_json(read.model_dump_json(exclude_defaults=True)) == read


@pytest.mark.parametrize(
    ("fields", "most"),
    [
        ({"replicas": 5}, 5),
        ({"replicas": 5, "job": {"parallelism": 2}}, 2),
        ({"replicas": 5, "job": {"parallelism": 9}}, 5),
    ],
)
def test_how_many_can_ever_run_at_once(fields: dict[str, Any], most: int) -> None:
    assert spec(**fields).most_at_once == most


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("job: {parallelism: 0}\n  replicas: 1", ":6: document 1, field spec.job.parallelism: "
         "got 0; allowed: a number of at least 1"),
        ("job: {completions: -2}", ":6: document 1, field spec.job.completions: got -2; "
         "allowed: a number of at least 1"),
        ("job: {completions: 4001}", ":6: document 1, field spec.job.completions: got 4001; "
         "allowed: a number of at most 4000"),
        ("job: {completions: 3}\n  replicas: 4", ":6: document 1, field spec.job.completions: "
         "got 3 beside 4 replicas; allowed: the same number, or omit replicas"),
        ("job: {max_failures: 0}\n  replicas: 1", ":6: document 1, field spec.job.max_failures: "
         "got 0; allowed: a number of at least 1"),
        ("job: {deadline: 0s}\n  replicas: 1", ":6: document 1, field spec.job.deadline: "
         "got '0s'; allowed: a whole number and one of the units s, m, h, d, such as 90s or 30d, "
         "up to 3660d"),
        ("job: {ttl_after_finished: -1h}\n  replicas: 1", ":6: document 1, field "
         "spec.job.ttl_after_finished: got '-1h'; allowed: a whole number and one of the units "
         "s, m, h, d, such as 90s or 30d, up to 3660d"),
        ("replicas: 1\n  job:\n    fatal_exit_codes: [3, 0]", ":8: document 1, field "
         "spec.job.fatal_exit_codes[1]: got 0; allowed: 1 to 128 and 193 to 255; those between "
         "mean that a signal has ended it"),
        ("replicas: 1\n  job: {fatal_exit_codes: [256]}", ":7: document 1, field "
         "spec.job.fatal_exit_codes[0]: got 256; allowed: 1 to 128 and 193 to 255; those between "
         "mean that a signal has ended it"),
        ("replicas: 1\n  job: {fatal_exit_codes: [137]}", ":7: document 1, field "
         "spec.job.fatal_exit_codes[0]: got 137; allowed: 1 to 128 and 193 to 255; those between "
         "mean that a signal has ended it"),
        ("replicas: 1\n  job: {fatal_exit_codes: [3, 4, 3]}", ":7: document 1, field "
         "spec.job.fatal_exit_codes[2]: got 3 again, first at fatal_exit_codes[0]; allowed: every "
         "code once"),
        ("replicas: 4\n  all_or_nothing: true\n  job: {parallelism: 3}", ":8: document 1, field "
         "spec.job.parallelism: got 3 for a gang of 4; allowed: at least 4, so that the gang can "
         "start together"),
        ("replicas: 4\n  minimum: 3\n  job: {parallelism: 2}", ":8: document 1, field "
         "spec.job.parallelism: got 2 for a gang of 3; allowed: at least 3, so that the gang can "
         "start together"),
        ("job: {parallelism: 1}", ":3: document 1, field spec.replicas: is missing; it must be "
         "given"),
        ("replicas: 1\n  job: {paralelism: 1}", ":7: document 1, field spec.job.paralelism: "
         "unknown field 'paralelism'; known fields: completions, parallelism, max_failures, "
         "deadline, ttl_after_finished, fatal_exit_codes; did you mean parallelism?"),
    ],
)  # fmt: skip
def test_a_contradiction_is_refused_by_file_line_and_field(
    tmp_path: Path, text: str, complaint: str
) -> None:
    path = tmp_path / "job.yaml"
    begins = "tenant: risk\nname: score\nspec:\n  kind: job\n  resources: {cpu: 1}\n"
    path.write_text(f"{begins}  {text}\n")
    with pytest.raises(ManifestError) as caught:
        load_manifest(path, WorkloadManifest)
    assert str(caught.value) == f"{path}{complaint}"


def test_a_service_has_no_job() -> None:
    with pytest.raises(ValueError, match="got it for a service; allowed: with kind: job"):
        WorkloadSpec.model_validate({"replicas": 1, "resources": {"cpu": 1}, "job": {}})
