"""`rtolap validate` on good and bad files."""

from __future__ import annotations

import json
from pathlib import Path

from rtolap.base.errors import DefinitionError
from rtolap.cli.definitions import app
from typer.testing import CliRunner

INCLUDE = Path(__file__).parents[2] / "include"


def test_sound_definitions_are_listed() -> None:
    result = CliRunner().invoke(app, ["validate", str(INCLUDE), "--json"])
    assert result.exit_code == 0, result.output
    assert {row["name"] for row in json.loads(result.output)} >= {"flights", "flights_cube", "airlines"}


def test_a_problem_is_an_error_that_names_the_line(tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text("kind: table\nnmae: x\n")
    result = CliRunner().invoke(app, ["validate", str(file)])
    assert isinstance(result.exception, DefinitionError)
    assert "wrong.yaml:2: nmae: unknown key" in str(result.exception)
    assert "did you mean 'name'?" in str(result.exception)
