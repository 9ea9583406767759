"""Publications as tasks: which are declared, and that an agent runs what the operator asks for."""

from __future__ import annotations

from pathlib import Path

import pytest
from rtolap.agent.commands import Commands
from rtolap.agent.host import Host
from rtolap.airflow.declared import PUBLICATIONS
from rtolap.airflow.operators.services import PublicationOperator
from rtolap.base.errors import DefinitionError


def test_publications_come_from_the_variable_or_the_file_and_by_default_there_are_none(
    tmp_path: Path,
) -> None:
    assert PUBLICATIONS.declared(None, tmp_path) == []
    (tmp_path / "publications.yaml").write_text("- {name: lake}\n")
    assert PUBLICATIONS.declared(None, tmp_path) == [{"publication": "lake"}]
    assert PUBLICATIONS.declared([{"name": "other"}], tmp_path) == [{"publication": "other"}]
    with pytest.raises(DefinitionError, match="wrong name"):
        PUBLICATIONS.declared([{"name": "../lake"}], tmp_path)


def test_an_agent_runs_a_publisher_and_no_other_command_of_publications(tmp_path: Path) -> None:
    operator = PublicationOperator(task_id="publisher", publication="lake")
    assert operator.process_key == "publish.lake"
    commands = Commands(Host(tmp_path, tmp_path, "file:///nowhere"))
    assert commands.resolve(operator.argv)[-3:] == ("publish", "serve", "lake")
    for refused in (
        ["publish", "drop", "lake"],
        ["publish", "serve", "--help"],
        ["publish", "serve", "../x"],
    ):
        with pytest.raises(DefinitionError):
            commands.resolve(["rtolap", *refused])
