"""What docker-compose.yml mounts and builds: each file is used, and says what durable expects."""

import asyncio
import os
import re
import subprocess
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client
from temporalio.testing import WorkflowEnvironment

from durable.settings import Settings
from durable.signals.search_attributes import SEARCH_ATTRIBUTES
from durable.stack.temporal_server import DYNAMIC_CONFIG, temporal_binary
from tests.compose_specification import Compose, read_compose

ROOT = Path(__file__).parents[1]
OPS = ROOT / "ops"


@pytest.fixture(scope="module")
def compose() -> Compose:
    passwords = ("TEMPORAL_DB_PASSWORD", "AUTHORITY_DB_PASSWORD", "GRAFANA_ADMIN_PASSWORD")
    return read_compose(ROOT / "docker-compose.yml", dict.fromkeys(passwords, "secret"))


def read_yaml(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def file_at(mounts: dict[str, str], path: str) -> Path:
    """The file of the repository that a container sees at a path."""
    target = max((target for target in mounts if path.startswith(target)), key=len)
    return (ROOT / mounts[target] / path.removeprefix(target).lstrip("/")).resolve()


def test_every_configuration_under_ops_parses_and_is_used(compose: Compose) -> None:
    mounted = [
        (ROOT / source).resolve()
        for service in compose.services.values()
        for source in service.mounts.values()
        if source.startswith("./")
    ]
    builds = [service.build for service in compose.services.values() if service.build]
    built = [ROOT / build.dockerfile for build in builds]
    for path in (path for path in OPS.rglob("*") if path.is_file()):
        if path.suffix in (".yml", ".yaml"):
            assert isinstance(read_yaml(path), dict)
        used = path.with_suffix("") in built or path in built
        assert used or any(path.is_relative_to(source) for source in mounted), path


def test_commands_and_settings_name_files_that_are_mounted(compose: Compose) -> None:
    named = re.compile(r"/etc/(?:durable|prometheus)/[a-z.]+")
    for service in compose.services.values():
        words = [*(service.entrypoint or ()), *(service.command or ())]
        for path in named.findall(" ".join([*words, *service.environment.values()])):
            assert file_at(service.mounts, path).is_file()


def test_prometheus_watches_only_what_runs(compose: Compose) -> None:
    mounts = compose.services["prometheus"].mounts
    config = read_yaml(file_at(mounts, "/etc/prometheus/prometheus.yml"))
    jobs = {
        job["job_name"]: job["static_configs"][0]["targets"] for job in config["scrape_configs"]
    }
    metrics_port = compose.services["temporal"].environment["PROMETHEUS_ENDPOINT"].split(":")[1]
    assert jobs == {"prometheus": ["localhost:9090"], "temporal": [f"temporal:{metrics_port}"]}
    rules = [
        rule
        for path in config["rule_files"]
        for group in read_yaml(file_at(mounts, path))["groups"]
        for rule in group["rules"]
    ]
    assert rules
    for rule in rules:
        assert set(re.findall(r'job="([^"]+)"', rule["expr"])) <= jobs.keys()
        assert (ROOT / rule["annotations"]["runbook"]).is_file()


def test_grafana_reads_the_prometheus_that_runs(compose: Compose) -> None:
    mounts = compose.services["grafana"].mounts
    path = "/etc/grafana/provisioning/datasources/prometheus.yaml"
    [source] = read_yaml(file_at(mounts, path))["datasources"]
    assert source["type"] == "prometheus"
    assert source["url"] == "http://prometheus:9090"
    assert "prometheus" in compose.services["grafana"].depends_on


def test_the_cluster_is_set_up_like_the_embedded_server(compose: Compose) -> None:
    dynamic = read_yaml(OPS / "temporal" / "dynamicconfig.yaml")
    values = {key: str(entry["value"]).lower() for key, [entry] in dynamic.items()}
    assert values == DYNAMIC_CONFIG
    default = Settings().temporal_namespace
    for name, variable in (
        ("temporal-namespace", "TEMPORAL_NAMESPACE"),
        ("temporal-ui", "TEMPORAL_DEFAULT_NAMESPACE"),
    ):
        assert compose.services[name].environment[variable] == default


def test_the_image_is_built_from_the_lock_and_does_not_run_as_root(compose: Compose) -> None:
    build = compose.services["authority-migrate"].build
    assert build is not None
    lines = (ROOT / build.context / build.dockerfile).read_text().splitlines()
    bases = [line.split()[1] for line in lines if line.startswith("FROM ")]
    assert all(re.fullmatch(r"python:3\.\d+\.\d+-slim-[a-z]+", base) for base in bases)
    assert any("--require-hashes --requirement requirements.lock" in line for line in lines)
    assert [line for line in lines if line.startswith("USER ")] == ["USER durable"]
    ignored = (OPS / "Dockerfile.dockerignore").read_text().splitlines()
    for line in lines:
        if line.startswith("COPY ") and "--from=" not in line:
            for source in line.split()[1:-1]:
                assert (ROOT / source).exists()
                assert f"!{source}" in ignored


@pytest.mark.server
async def test_the_namespace_job_sets_up_a_real_server_and_may_run_again(tmp_path: Path) -> None:
    start_local = cast(Any, WorkflowEnvironment).start_local
    async with await start_local(
        dev_server_existing_path=temporal_binary(),
        dev_server_extra_args=[
            "--dynamic-config-value",
            'system.namespaceCacheRefreshInterval="1s"',
        ],
    ) as environment:
        client: Client = environment.client
        for _ in range(2):
            await run_namespace_job(client.service_client.config.target_host, tmp_path)
        described = await client.workflow_service.describe_namespace(
            DescribeNamespaceRequest(namespace="compose-test")
        )
        listed = await client.operator_service.list_search_attributes(
            ListSearchAttributesRequest(namespace="compose-test")
        )
    assert described.config.workflow_execution_retention_ttl.seconds == 30 * 86_400
    assert {
        name: kind for name, kind in listed.custom_attributes.items() if name.startswith("Durable")
    } == {
        attribute.name: IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD
        for attribute in SEARCH_ATTRIBUTES
    }


async def run_namespace_job(address: str, home: Path) -> None:
    script = OPS / "temporal" / "namespace.sh"
    job = await asyncio.create_subprocess_exec(
        "/bin/sh",
        script,
        env={
            "PATH": f"{Path(temporal_binary()).parent}{os.pathsep}{os.defpath}",
            "HOME": str(home),
            "TEMPORAL_ADDRESS": address,
            "TEMPORAL_NAMESPACE": "compose-test",
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await job.communicate()
    assert job.returncode == 0, output.decode()


@pytest.mark.parametrize("script", sorted(OPS.rglob("*.sh")), ids=str)
def test_every_script_is_shell_that_parses(script: Path) -> None:
    checked = subprocess.run(["/bin/sh", "-n", script], capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")
