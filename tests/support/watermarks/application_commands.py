"""The commands about watermarks, run against the in-process coordinator."""

from __future__ import annotations

import pytest
import typer
from rtolap.cli import definitions
from rtolap.cli.watermark import history as watermark_history
from rtolap.cli.watermark import hosts as watermark_hosts
from rtolap.cli.watermark import show as watermark_show
from rtolap.cli.watermark import topology as watermark_topology
from rtolap.cli.watermark import windows as watermark_windows
from rtolap.cli.watermark import words as watermark_words
from typer.testing import CliRunner, Result

from tests.support.cubes.coordinator_harness import Cluster

ASKING = (
    definitions,
    watermark_history,
    watermark_hosts,
    watermark_show,
    watermark_topology,
    watermark_windows,
    watermark_words,
)


def ask_this(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have commands query this cluster until the test is over."""
    monkeypatch.setattr(cluster.client, "close", lambda: None)  # commands close what they open
    for module in ASKING:
        monkeypatch.setattr(module, "coordinator_client", lambda **_: cluster.client)


def run(app: typer.Typer, *arguments: str, code: int = 0, answer: str | None = None) -> Result:
    """Run in a wide terminal; `code` is the expected exit code."""
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": "200"}, input=answer)
    assert result.exit_code == code, result.output
    return result
