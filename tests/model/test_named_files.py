"""`rtolap validate` finds what a loader's process would miss, with all that is wrong in all files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rtolap.base.errors import DefinitionError
from rtolap.cli.definitions import app
from rtolap.model.validation.files import file_problems
from rtolap.model.yaml_files import read_definitions
from typer.testing import CliRunner

LOADER = "kind: loader\nname: {name}\ntopic: t\ndatabase: d\ntable: t\nsink: {sink}\n"


def loader(folder: Path, name: str, **sink: object) -> Path:
    file = folder / f"{name}.yaml"
    file.write_text(LOADER.format(name=name, sink=json.dumps(sink)))
    return file


def secret(folder: Path, name: str, mode: int) -> str:
    file = folder / name
    file.write_text("secret\n")
    file.chmod(mode)
    return str(file)


def complaints(folder: Path) -> list[str]:
    with pytest.raises(DefinitionError) as refused:
        read_definitions(folder, also=file_problems)
    return str(refused.value).splitlines()


def test_all_mistakes_of_all_files_are_told_at_once(tmp_path: Path) -> None:
    loader(tmp_path, "away", password_file=str(tmp_path / "nothing"))
    loader(tmp_path, "open_to_all", password_file=secret(tmp_path, "open", 0o644))
    loader(tmp_path, "folder", ca_file=str(tmp_path))
    loader(tmp_path, "broken", timeout_ms=1)
    loader(tmp_path, "sound", password_file=secret(tmp_path, "private", 0o640))
    (tmp_path / "typo.yaml").write_text("kind: loader\nname: typo\ntopik: t\n")
    (tmp_path / "no.yaml").write_text("kind: [")
    (tmp_path / "subscription.yaml").write_text(
        "kind: subscription\nname: s\ntables: {t: []}\nlistener: {kind: stored_table, database: d, table: t,"
        f" password_file: {tmp_path}/none}}\n"
    )
    reported = complaints(tmp_path)
    for file, words in (
        ("away.yaml:6: sink.password_file", "cannot be read"),
        ("open_to_all.yaml:6: sink.password_file", "the secret is not private"),
        ("folder.yaml:6: sink.ca_file", "no file"),
        ("broken.yaml:6: sink.timeout", "out of bounds"),
        ("typo.yaml", "topik"),
        ("no.yaml", "not YAML"),
        ("subscription.yaml:4: listener.password_file", "cannot be read"),
    ):
        assert any(file in line and words in line for line in reported), (file, words, reported)
    assert not any("sound.yaml" in line for line in reported)


def test_files_of_other_hosts_are_not_looked_for(tmp_path: Path) -> None:
    loader(tmp_path, "away", password_file=str(tmp_path / "nothing"))
    refused = CliRunner().invoke(app, ["validate", str(tmp_path)])
    assert isinstance(refused.exception, DefinitionError)
    assert CliRunner().invoke(app, ["validate", "--elsewhere", str(tmp_path)]).exit_code == 0
