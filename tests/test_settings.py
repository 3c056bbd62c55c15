"""Settings: read from the environment, refused with a sentence, silent about secrets."""

import os
from pathlib import Path

import pytest

from durable.settings import Settings, SettingsError
from durable.state_dir.directory import StateDirectory
from durable.state_dir.processes import Process
from durable.state_dir.record import StackError, StackRecord

SECRET = "hunter2"  # noqa: S105
URL = f"postgresql://durable:{SECRET}@db.example:5432/durable"


def refusal(**variables: str) -> str:
    with pytest.raises(SettingsError) as refused:
        Settings.from_environment(variables)
    return str(refused.value)


def test_an_empty_environment_gives_the_defaults() -> None:
    settings = Settings.from_environment({})

    assert settings == Settings()
    assert settings.state_dir == Path(".durable")
    assert settings.temporal_namespace == "durable"
    assert settings.regional_database_urls == {}


def test_every_variable_is_read(tmp_path: Path) -> None:
    certificate = tmp_path / "file.pem"
    certificate.touch()
    settings = Settings.from_environment(
        {
            "DURABLE_STATE_DIR": "/var/durable",
            "DURABLE_DATABASE_URL": URL,
            "DURABLE_REGIONAL_DATABASE_URLS": f'{{"us-east": "{URL}"}}',
            "DURABLE_TEMPORAL_ADDRESS": "temporal.example:7233",
            "DURABLE_TEMPORAL_NAMESPACE": "team.a1b2c",
            "DURABLE_TEMPORAL_TLS": "yes",
            "DURABLE_TEMPORAL_TLS_CA": str(certificate),
            "DURABLE_TEMPORAL_TLS_CERT": str(certificate),
            "DURABLE_TEMPORAL_TLS_KEY": str(certificate),
            "DURABLE_TEMPORAL_API_KEY": SECRET,
            "DURABLE_TEMPORAL_UI_URL": "https://temporal.example",
            "DURABLE_DEBUG": "1",
            "PATH": "/usr/bin",
        }
    )

    assert settings.state_dir == Path("/var/durable")
    assert settings.require_database_url() == URL
    assert settings.regional_database_urls == {"us-east": URL}
    assert settings.require_temporal_address() == "temporal.example:7233"
    assert settings.temporal_namespace == "team.a1b2c"
    assert settings.temporal_tls
    assert settings.temporal_tls_ca == certificate
    assert settings.temporal_api_key is not None
    assert settings.temporal_api_key.get_secret_value() == SECRET
    assert settings.temporal_ui_url == "https://temporal.example"
    assert settings.debug
    assert SECRET not in repr(settings)


def test_a_variable_that_is_empty_counts_as_unset() -> None:
    assert Settings.from_environment({"DURABLE_DATABASE_URL": ""}).database_url is None


def test_the_callers_state_directory_overrides_the_variable() -> None:
    given = Settings.from_environment({"DURABLE_STATE_DIR": "/a"}, state_dir=Path("/b"))

    assert given.state_dir == Path("/b")


def test_an_unknown_variable_is_refused_with_the_list_of_settings() -> None:
    sentence = refusal(DURABLE_DATABSE_URL=URL)

    assert "DURABLE_DATABSE_URL is not a setting (did you mean DURABLE_DATABASE_URL?)" in sentence
    for name in Settings.model_fields:
        assert f"DURABLE_{name.upper()}" in sentence
    assert SECRET not in sentence


@pytest.mark.parametrize(
    ("variable", "value", "allowed"),
    [
        ("DURABLE_TEMPORAL_ADDRESS", "localhost", "an address like host:7233"),
        ("DURABLE_TEMPORAL_ADDRESS", "http://localhost:7233", "an address like host:7233"),
        ("DURABLE_TEMPORAL_ADDRESS", "localhost:0", "an address like host:7233"),
        ("DURABLE_TEMPORAL_NAMESPACE", "two words", "a name of letters"),
        ("DURABLE_TEMPORAL_TLS", "perhaps", "true or false"),
        ("DURABLE_TEMPORAL_TLS_CA", "/nowhere.pem", "a file that exists"),
        ("DURABLE_TEMPORAL_UI_URL", "temporal:8233", "a URL like http://host:8233"),
        ("DURABLE_ACTOR", "Alice Smith", "a name like person:alice"),
        ("DURABLE_DEBUG", "2", "true or false"),
    ],
)
def test_a_bad_value_is_shown_with_what_is_allowed(variable: str, value: str, allowed: str) -> None:
    sentence = refusal(**{variable: value})

    assert sentence.startswith(f"{variable} is {value!r}, which is not {allowed}")


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("DURABLE_DATABASE_URL", f"mysql://durable:{SECRET}@host/durable"),
        ("DURABLE_DATABASE_URL", f"postgresql://durable:{SECRET}@host"),
        ("DURABLE_DATABASE_URL", SECRET),
        ("DURABLE_REGIONAL_DATABASE_URLS", f'["{URL}"]'),
        ("DURABLE_REGIONAL_DATABASE_URLS", f'{{"us-east": "{SECRET}"}}'),
        ("DURABLE_REGIONAL_DATABASE_URLS", URL),
    ],
)
def test_a_bad_value_that_may_hold_a_secret_is_not_shown(variable: str, value: str) -> None:
    sentence = refusal(**{variable: value})

    assert sentence.startswith(f"{variable} is set to a value")
    assert "postgresql://user:password@host" in sentence
    assert SECRET not in sentence


def test_secrets_are_not_sent_unencrypted() -> None:
    sentence = refusal(DURABLE_TEMPORAL_API_KEY=SECRET)

    assert sentence == "DURABLE_TEMPORAL_API_KEY requires DURABLE_TEMPORAL_TLS=true."


def test_a_client_certificate_needs_its_key(tmp_path: Path) -> None:
    certificate = tmp_path / "file.pem"
    certificate.touch()

    sentence = refusal(DURABLE_TEMPORAL_TLS="true", DURABLE_TEMPORAL_TLS_CERT=str(certificate))

    assert (
        sentence == "DURABLE_TEMPORAL_TLS_CERT and DURABLE_TEMPORAL_TLS_KEY must be set together."
    )


def test_unset_addresses_are_those_of_the_running_stack(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path)
    state.prepare()
    state.write_record(
        StackRecord(
            supervisor=Process(pid=os.getpid(), started="now"),
            database_url=URL,
            temporal_address="127.0.0.1:7233",
        )
    )
    settings = Settings(state_dir=tmp_path)

    with state.locked():
        assert settings.require_database_url() == URL
        assert settings.require_temporal_address() == "127.0.0.1:7233"


def test_without_a_running_stack_the_sentence_says_what_to_do(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path)
    state.prepare()
    sentence = f"No stack is running in {tmp_path}: start one with `durable up`. Or set DURABLE_"
    with pytest.raises(StackError, match=sentence):
        Settings(state_dir=tmp_path).require_database_url()


def test_a_part_that_the_stack_does_not_run_must_be_set(tmp_path: Path) -> None:
    state = StateDirectory(tmp_path)
    state.prepare()
    state.write_record(StackRecord(supervisor=Process(pid=os.getpid(), started="now")))

    with state.locked(), pytest.raises(StackError, match="set DURABLE_TEMPORAL_ADDRESS"):
        Settings(state_dir=tmp_path).require_temporal_address()
