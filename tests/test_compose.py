"""docker-compose.yml keeps to the specification, and everything that it names is there."""

import os
import re
import shutil
import subprocess
import tomllib
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import pytest

from durable.cli.main import execute
from durable.settings import Settings
from tests.compose_specification import Compose, interpolate, read_compose

ROOT = Path(__file__).parents[1]
FILE = ROOT / "docker-compose.yml"
OURS = ("worker-global", "worker-regions", "agent")
PASSWORDS = {
    "TEMPORAL_DB_PASSWORD": "one",
    "AUTHORITY_DB_PASSWORD": "two",
    "GRAFANA_ADMIN_PASSWORD": "three",
}


@pytest.fixture(scope="module")
def compose() -> Compose:
    return read_compose(FILE, PASSWORDS)


def test_images_are_the_ones_that_were_tried_and_none_floats(compose: Compose) -> None:
    images = {name: service.image for name, service in compose.services.items()}
    assert images == {
        "temporal-postgres": "postgres:18",
        "temporal-schema": "temporalio/admin-tools:1.32.0",
        "temporal": "temporalio/server:1.32.0",
        "temporal-namespace": "temporalio/admin-tools:1.32.0",
        "temporal-ui": "temporalio/ui:2.54.1",
        "authority-postgres": "postgres:18",
        "authority-migrate": f"durable:{project()['version']}",
        **dict.fromkeys(OURS, f"durable:{project()['version']}"),
        "prometheus": "prom/prometheus:v3.5.0",
        "grafana": "grafana/grafana:12.4.0",
    }


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.mark.parametrize("missing", PASSWORDS)
def test_a_missing_password_is_refused_with_a_sentence(missing: str) -> None:
    others = {name: value for name, value in PASSWORDS.items() if name != missing}
    with pytest.raises(ValueError, match=rf"{missing} is not set: set the password of .* in \.env"):
        read_compose(FILE, others)


def test_only_passwords_must_be_set(compose: Compose) -> None:
    assert compose == read_compose(FILE, PASSWORDS | {"TEMPORAL_PORT": "7233"})
    # The settings refuse unknown variables of their prefix, so none of ours may have it.
    assert not re.search(r"\$\{DURABLE_", FILE.read_text())


def test_dependencies_exist_can_be_met_and_have_no_cycle(compose: Compose) -> None:
    for service in compose.services.values():
        for target, dependency in service.depends_on.items():
            other = compose.services[target]
            if dependency.condition == "service_healthy":
                assert other.healthcheck is not None
            if dependency.condition == "service_completed_successfully":
                assert other.runs_once
    order = {name: service.depends_on.keys() for name, service in compose.services.items()}
    assert len(list(TopologicalSorter(order).static_order())) == len(compose.services)


def test_what_runs_for_long_is_watched_and_what_runs_once_may_fail(compose: Compose) -> None:
    for service in compose.services.values():
        assert service.runs_once == (service.healthcheck is None)
        assert service.runs_once or service.restart == "unless-stopped"
        assert service.logging.options.keys() == {"max-size", "max-file"}


def test_ports_are_open_to_this_machine_alone_and_never_twice(compose: Compose) -> None:
    ports = [port for service in compose.services.values() for port in service.ports]
    published = [port.split(":")[1] for port in ports]
    assert all(port.startswith("127.0.0.1:") for port in ports)
    assert len(set(published)) == len(published) == 5
    assert all(0 < int(number) < 65_536 for port in ports for number in port.split(":")[1:])


def test_every_mount_is_a_declared_volume_or_a_read_only_file_of_the_repository(
    compose: Compose,
) -> None:
    used: set[str] = set()
    for service in compose.services.values():
        for mount in service.volumes:
            source = mount.split(":")[0]
            if source.startswith("./"):
                assert (ROOT / source).exists()
                assert mount.endswith(":ro")
            else:
                used.add(source)
    assert used == set(compose.volumes)


def test_postgres_keeps_its_data_where_version_18_expects_the_volume(compose: Compose) -> None:
    databases = [
        service for service in compose.services.values() if service.image.startswith("postgres:")
    ]
    assert [set(service.mounts) for service in databases] == [{"/var/lib/postgresql"}] * 2
    assert databases[0].mounts != databases[1].mounts


def test_the_two_databases_share_neither_password_nor_host(compose: Compose) -> None:
    temporal, migrate = compose.services["temporal"], compose.services["authority-migrate"]
    assert temporal.environment["POSTGRES_SEEDS"] == "temporal-postgres"
    assert temporal.environment["POSTGRES_PWD"] == PASSWORDS["TEMPORAL_DB_PASSWORD"]
    url = migrate.environment["DURABLE_DATABASE_URL"]
    assert url == "postgresql://durable:two@authority-postgres:5432/durable"
    settings = Settings.from_environment({"DURABLE_DATABASE_URL": url})
    assert settings.require_database_url() == url


def test_our_own_processes_are_commands_that_exist_and_reach_both_servers(
    compose: Compose,
) -> None:
    for name in OURS:
        service = compose.services[name]
        settings = Settings.from_environment(service.environment)
        assert settings.require_temporal_address() == "temporal:7233"
        assert settings.temporal_namespace == "durable"
        assert "authority-postgres:5432" in settings.require_database_url()
        assert service.command is not None
        assert service.healthcheck is not None
        for command in (service.command, service.healthcheck.test[1:]):
            assert command[0] in project()["scripts"]
            assert execute([*command[1:], "--help"]) == 0


def test_the_migration_command_migrates(
    compose: Compose, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = compose.services["authority-migrate"].command
    assert command is not None
    assert command[0] in project()["scripts"]
    monkeypatch.setenv("DURABLE_DATABASE_URL", database_url)
    assert execute(list(command[1:])) == 0


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a", "a"),
        ("$$a", "$a"),
        ("${SET}-b", "one-b"),
        ("${SET:-x}", "one"),
        ("${UNSET:-x}", "x"),
        ("${EMPTY:-x}", "x"),
        ("${EMPTY-x}", ""),
        ("${SET:?say}", "one"),
    ],
)
def test_variables_are_read_as_compose_reads_them(text: str, value: str) -> None:
    assert interpolate(text, {"SET": "one", "EMPTY": ""}) == value


@pytest.mark.parametrize(
    "text", ["$UNSET", "${UNSET}", "${UNSET:?say}", "${EMPTY:?say}", "${", "${1A}", "a$", "${A!b}"]
)
def test_variables_that_compose_would_refuse_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not set|not an interpolation"):
        interpolate(text, {"EMPTY": ""})


def test_docker_compose_agrees() -> None:
    docker = shutil.which("docker")
    if docker is None or subprocess.run([docker, "compose", "version"], check=False).returncode:
        pytest.skip("this machine has no docker compose")
    checked = subprocess.run(
        [docker, "compose", "--file", FILE, "config", "--quiet"],
        env=os.environ | PASSWORDS,
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stderr
