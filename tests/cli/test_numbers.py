"""Numbers that people give: no command and no setting takes one that means nothing."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rtolap.base.addresses import PORT_MAX
from rtolap.base.errors import DefinitionError
from rtolap.base.settings import Settings
from rtolap.cli.main import MOUNTS, load


def _commands(command: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    parts: dict[str, Any] = getattr(command, "commands", {})
    for name, part in parts.items():
        yield from _commands(part, (*path, name))
    if not parts:
        yield " ".join(path), command


def _is_number(annotation: object) -> bool:
    return annotation in (int, float) or any(map(_is_number, typing.get_args(annotation)))


def test_every_number_of_a_command_has_bounds() -> None:
    seen, boundless = 0, []
    for name in MOUNTS:
        for command, found in _commands(load(name), (name,)):
            for parameter in found.params:
                described = getattr(parameter, "type_descriptor", None)
                if described is None or not _is_number(described.annotation):
                    continue
                seen += 1
                ends = PORT_MAX if parameter.name.rpartition("_")[2] == "port" else parameter.max
                if parameter.min is None or parameter.max != ends:
                    boundless.append(f"{command} {parameter.name}")
    assert seen > 100
    assert boundless == []


_NUMBERS = sorted(
    name
    for name, field in Settings.model_fields.items()
    if _is_number(field.annotation) and field.annotation is not bool
)


@pytest.mark.parametrize("name", _NUMBERS)
@pytest.mark.parametrize("value", ["-1", "nan", "inf", "-inf", "many", "", "1e400", "0x10", str(1 << 64)])
def test_a_number_that_means_nothing_is_refused_with_its_variable(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    variable = f"RTOLAP_{name.upper()}"
    monkeypatch.setenv(variable, value)
    is_port = name.endswith("_port")
    if value == str(1 << 64) and not is_port:
        assert getattr(Settings(), name) == 1 << 64, "a limit may be as high as one likes"
        return
    with pytest.raises(DefinitionError, match=variable) as caught:
        Settings()
    assert f"{variable}={value}" in str(caught.value)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("RTOLAP_LOG_LEVEL", "LOUD"),
        ("RTOLAP_LOG_FORMAT", "xml"),
        ("RTOLAP_PLACEMENT", "strictly"),
        ("RTOLAP_QUERY_REQUIRE_TLS", "perhaps"),
        ("RTOLAP_HOST", "host:80"),
        ("RTOLAP_ZOOKEEPER", ""),
        ("RTOLAP_ZOOKEEPER", "one,two:x"),
        ("RTOLAP_ZOOKEEPER", "::1:2181"),
        ("RTOLAP_HBASE", "host:/hbase"),
        ("RTOLAP_COORDINATORS", "localhost:7070"),
        ("RTOLAP_COORDINATORS", "http://one:7070,ftp://two"),
        ("RTOLAP_COORDINATORS", "http://[::1"),
        ("RTOLAP_STREAM_LOAD_ENDPOINTS", "http://host:port"),
    ],
)
def test_a_setting_that_names_nothing_is_refused_with_its_variable(
    variable: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(DefinitionError, match=f"{variable}="):
        Settings()


def test_all_settings_that_cannot_be_used_are_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RTOLAP_AGENT_PORT", "70000")
    monkeypatch.setenv("RTOLAP_SESSION_TIMEOUT_S", "soon")
    with pytest.raises(DefinitionError, match="2 settings") as caught:
        Settings()
    assert "RTOLAP_AGENT_PORT=70000" in str(caught.value)
    assert "RTOLAP_SESSION_TIMEOUT_S=soon" in str(caught.value)


def test_sound_settings_stand_as_they_were_given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given = {
        "RTOLAP_ZOOKEEPER": "one,two:2182,[::1]:2183/below",
        "RTOLAP_HBASE": "one:2181,two:2181/hbase",
        "RTOLAP_COORDINATORS": "http://one:7070, https://[::1]:7070/",
        "RTOLAP_SCHEMA_REGISTRY": "",
        "RTOLAP_DATA_DIR": str(tmp_path),
    }
    for variable, value in given.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.setenv("RTOLAP_LOG_LEVEL", "warning")
    settings = Settings()
    for variable, value in given.items():
        assert str(getattr(settings, variable.removeprefix("RTOLAP_").lower())) == value
    assert settings.log_level == "WARNING"


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("RTOLAP_COORDINATORS", "http://one:7070,http://me:secret@two:7070"),
        ("RTOLAP_ZOOKEEPER", "me:secret@one:x"),
        ("RTOLAP_HOST", "me:secret@one"),
        ("RTOLAP_AGENT_PORT", "me:secret@7060"),
    ],
)
def test_a_refused_setting_shows_no_credentials(
    variable: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(DefinitionError, match=f"{variable}=") as caught:
        Settings()
    assert "secret" not in str(caught.value)
