"""Each benchmark with a command line begins, and says what it can be told."""

from __future__ import annotations

import ast
import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def _has_command_line(path: Path) -> bool:
    """Tell whether this is a program with options that a person runs. A process of another benchmark demands
    them."""
    text = path.read_text()
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    called = {getattr(call.func, "attr", getattr(call.func, "id", "")) for call in calls}
    demands = any(word.arg == "required" for call in calls for word in call.keywords)
    return '"__main__"' in text and bool(called & {"ArgumentParser", "new_parser"}) and not demands


PROGRAMS = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__main__")
    for path in (ROOT / "benchmarks").rglob("*.py")
    if _has_command_line(path)
)


def test_there_are_programs() -> None:
    assert {"benchmarks.freshness", "benchmarks.stream_load", "benchmarks.catch_up"} <= set(PROGRAMS)


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_benchmark_begins(
    program: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [program, "--help"])
    monkeypatch.delitem(sys.modules, program, raising=False)  # another benchmark may have imported it
    with pytest.raises(SystemExit) as ended:
        runpy.run_module(program, run_name="__main__")
    said = capsys.readouterr().out
    assert ended.value.code == 0
    assert "--json" in said, f"{program} says its figures to no program"
