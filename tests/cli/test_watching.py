"""A command with `--watch` looks again and again; on a terminal a look takes the place of the one before."""

from __future__ import annotations

import importlib
import io
import json
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import pytest
import typer
from rich.console import Console
from rtolap.base.errors import Unavailable
from rtolap.cli import output, watching
from rtolap.cli.main import MOUNTS
from rtolap.cli.output import JsonOption, print_json, print_table, warn
from rtolap.cli.watching import repeatable
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command
from typer.testing import CliRunner

LOOKING = {"list", "show", "status", "lag", "describe", "moves", "brokers", "snapshot", "replica-sets"}
ERASE_LINE = "\x1b[2K"
# Definitions, statements and plans as they were made: nothing of them changes by itself.
UNCHANGING = {"describe", "tables show", "fleet plan show"}


class Looks:
    """Answers of a service, one for each look; an error among them is raised."""

    def __init__(self, *answers: int | Exception) -> None:
        self.answers = list(answers)
        self.pauses_s: list[float] = []

    def next(self) -> int:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def pause(self, seconds: float) -> None:
        self.pauses_s.append(seconds)
        if not self.answers:
            raise KeyboardInterrupt


Run = Callable[..., tuple[int, str, Looks]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    def ran(*arguments: str, answers: tuple[int | Exception, ...]) -> tuple[int, str, Looks]:
        looks = Looks(*answers)
        monkeypatch.setattr(watching, "pause", looks.pause)
        app = typer.Typer()

        @app.command()
        @repeatable
        def show(name: Annotated[str, typer.Argument(help="Its name.")], as_json: JsonOption = False) -> None:
            """Show it."""
            lag = looks.next()
            if as_json:
                print_json({name: lag})
            else:
                print_table(("name", "lag"), [(name, lag)])
                if lag > 2:
                    warn(f"{name} lags")
            raise typer.Exit(3)

        done = CliRunner().invoke(app, list(arguments))
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done.exit_code, done.stdout, looks

    return ran


def test_without_it_there_is_one_look_with_its_exit_code(run: Run) -> None:
    assert run("hits", answers=(1,))[:2] == (3, "name\tlag\nhits\t1\n")


def test_in_a_pipe_each_look_follows_the_other_until_an_interrupt(run: Run) -> None:
    code, printed, looks = run("hits", "--watch", "--every", "250ms", answers=(1, 2))
    assert (code, printed) == (0, "name\tlag\nhits\t1\nname\tlag\nhits\t2\n")
    assert looks.pauses_s == [0.25, 0.25]


def test_with_json_each_look_is_a_document(run: Run) -> None:
    _, printed, _ = run("hits", "-w", "--json", answers=(1, 2))
    decoder, documents, rest = json.JSONDecoder(), [], printed.strip()
    while rest:
        document, end = decoder.raw_decode(rest)
        documents.append(document)
        rest = rest[end:].strip()
    assert documents == [{"hits": 1}, {"hits": 2}]


def test_a_service_that_is_away_for_a_look_does_not_end_the_watch(run: Run) -> None:
    code, printed, _ = run("hits", "--watch", answers=(1, Unavailable("the coordinator is away"), 2))
    assert (code, printed) == (0, "name\tlag\nhits\t1\nname\tlag\nhits\t2\n")
    with pytest.raises(Unavailable, match="the coordinator is away"):
        run("hits", "--watch", answers=(Unavailable("the coordinator is away"),))


def test_a_pause_that_is_no_pause_is_at_least_a_tenth_of_a_second(run: Run) -> None:
    assert run("hits", "--watch", "--every", "1ms", answers=(1, 2))[2].pauses_s == [0.1, 0.1]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """Everything that a terminal would get."""
    written = io.StringIO()

    def on_terminal() -> Console:
        return Console(file=written, force_terminal=True, width=80, height=24, highlight=False)

    for name in ("console", "error_console"):
        one = on_terminal()
        monkeypatch.setattr(output, name, one)
        monkeypatch.setattr(watching, name, one)
    monkeypatch.setattr(watching, "Console", on_terminal)
    return written


def test_on_a_terminal_a_look_takes_the_place_of_the_one_before(run: Run, terminal: io.StringIO) -> None:
    code, printed, _ = run("hits", "--watch", answers=(7, Unavailable("the coordinator is away"), 8))
    assert code == 0
    assert "\x1b" not in printed
    first, _, rest = terminal.getvalue().partition("error: the coordinator is away")
    assert "hits lags" in first
    assert ERASE_LINE in first  # the error is written over what was there
    assert "hits lags" in rest
    assert ERASE_LINE in rest


def commands() -> Iterator[tuple[str, TyperCommand]]:
    """Every command by its words, such as `fleet plan show`."""

    def below(name: str, command: Any) -> Iterator[tuple[str, TyperCommand]]:
        if isinstance(command, TyperGroup):
            for word, one in command.commands.items():
                yield from below(f"{name} {word}", one)
        else:
            yield name, command

    for name, mount in MOUNTS.items():
        app = get_command(importlib.import_module(mount.module).app)
        if mount.command is not None and isinstance(app, TyperGroup):
            yield from below(name, app.commands[mount.command])
        else:
            yield from below(name, app)


def test_every_command_that_looks_at_what_changes_can_watch() -> None:
    looking = {name: command for name, command in commands() if name.split()[-1] in LOOKING}
    assert len(looking) > 15
    watches = {
        name
        for name, command in looking.items()
        if any("--watch" in parameter.opts for parameter in command.params)
    }
    assert set(looking) - watches == UNCHANGING
