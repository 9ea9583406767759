"""`--watch` of commands that look and print: the same look again and again, in place of the one before.

`repeatable` gives it to a command that knows nothing of other looks. A command that compares looks, or serves
them to Prometheus, has the option itself and shows its looks on a `Screen`."""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from rtolap.base.errors import DefinitionError, RtolapError
from rtolap.cli.output import console, error_console, print_json, print_table, text_table, warn
from rtolap.model.durations import parse_duration_ms

EVERY = "2s"
_EVERY_MS_MIN = 100

WatchOption = Annotated[bool, typer.Option("--watch", "-w", help="Repeat until Ctrl-C.")]
_OPTIONS = {
    "watch": (WatchOption, False),
    "every": (Annotated[str, typer.Option(help="With --watch: pause between two looks.")], EVERY),
}


def repeatable(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with the options `--watch` and `--every`.

    On a terminal a look takes the place of the one before. In a pipe each is printed after the other; with
    `--json` each is a document. A service that does not answer the first look ends the command; later on the
    error takes the place of the look, and the next look may succeed."""
    signature = inspect.signature(command, eval_str=True)
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, (annotation, default) in _OPTIONS.items()
    ]

    @functools.wraps(command)
    def run(*arguments: Any, watch: bool = False, every: str = EVERY, **options: Any) -> None:
        look = functools.partial(command, *arguments, **options)
        if watch:
            _repeat(look, parse_duration_ms(every), in_place=not options.get("as_json"))
        else:
            look()

    parameters = [*signature.parameters.values(), *added]
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _repeat(look: Callable[[], None], every_ms: int, *, in_place: bool) -> None:
    with suppress(KeyboardInterrupt):
        if not (in_place and console.is_terminal):
            _again(functools.partial(_without_exit, look), lambda error: warn(str(error)), every_ms)
            return
        # A console of its own: what is captured from the shared one must not pass through the live display.
        with Live(console=Console(), auto_refresh=False) as live:

            def show(text: str) -> None:
                live.update(Text.from_ansi(text), refresh=True)

            _again(lambda: show(_printed_by(look)), lambda error: show(f"error: {error}"), every_ms)


def _again(look: Callable[[], None], failed: Callable[[RtolapError], None], every_ms: int) -> None:
    """Look without end. Errors of the first look and interrupts are the caller's."""
    look()
    while True:
        pause(max(every_ms, _EVERY_MS_MIN) / 1000)
        try:
            look()
        except RtolapError as error:
            failed(error)


def _printed_by(look: Callable[[], None]) -> str:
    """Return what the look prints on both outputs."""
    with console.capture() as printed, error_console.capture() as complained:
        _without_exit(look)
    return f"{printed.get()}{complained.get()}"


def _without_exit(look: Callable[[], None]) -> None:
    """Look, whatever exit code the look has for a single one."""
    with suppress(typer.Exit):
        look()


def pause(seconds: float) -> None:
    """Wait between two looks. It is apart so that a test counts looks instead of seconds."""
    time.sleep(seconds)


def check_watched(watch: bool, metrics_port: int | None) -> None:
    """Raise DefinitionError where metrics of a single look are to be served."""
    if metrics_port is not None and not watch:
        raise DefinitionError("one look is no use to Prometheus", action="take --watch with --metrics-port")


def interrupted(watch: bool) -> AbstractContextManager[None]:
    """Let Ctrl-C end a watch."""
    return suppress(KeyboardInterrupt) if watch else nullcontext()


@dataclass(frozen=True)
class ShownTable:
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    title: str | None = None


class Screen:
    """Tables, again and again in one place with --watch; JSON documents one after the other."""

    def __init__(self, opened: ExitStack, *, watch: bool, as_json: bool) -> None:
        self._as_json = as_json
        self._live: Live | None = None
        if watch and not as_json:
            self._live = opened.enter_context(Live(console=console, auto_refresh=False))

    def show(self, document: object, tables: Sequence[ShownTable], notes: Iterable[str] = ()) -> None:
        """Show a look. Printed for good, a table below the first is left out where it has no rows."""
        if self._as_json:
            print_json(document)
        elif self._live is not None:
            parts: list[RenderableType] = [
                text_table(table.columns, table.rows, title=table.title) for table in tables
            ]
            parts += [Text(f"! {note}", style="yellow") for note in notes]
            self._live.update(Group(*parts), refresh=True)
        else:
            for number, table in enumerate(tables):
                if number and table.rows:
                    console.print()
                if table.rows or not number:
                    print_table(table.columns, table.rows, title=table.title)
            for note in notes:
                warn(note)
