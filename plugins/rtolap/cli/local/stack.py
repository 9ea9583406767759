"""`rtolap stack` starts and stops the local stack."""

from __future__ import annotations

import shutil
import sys
import threading
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.live import Live
from rich.table import Table

from rtolap.base.errors import DefinitionError
from rtolap.cli.output import JsonOption, console, error_console, print_json, print_table, success, warn
from rtolap.cli.watching import repeatable
from rtolap.stack.environment import airflow_line, load_line, mysql_line
from rtolap.stack.inherited import of_others
from rtolap.stack.layout import DEFAULT_DIR, StackLayout
from rtolap.stack.lifecycle import Stack
from rtolap.stack.log_files import Follower, last_lines
from rtolap.stack.state import PORT_OWNERS, StackState, load_state

EXIT_PART_DOWN = 3
_FOLLOW_POLL_S = 0.3
_TAIL_LINES = 100
_MARKS = {
    "ready": "[green]✓[/green]",
    "fetched": "[green]✓[/green]",
    "failed": "[red]✗[/red]",
    "skipped": "[yellow]-[/yellow]",
}

app = typer.Typer(help="Start, stop and show the local stack.", no_args_is_help=True)

DirOption = Annotated[
    Path, typer.Option("--dir", help="Folder of the stack.", envvar="RTOLAP_STACK_DIR", file_okay=False)
]
_DIR = Path(DEFAULT_DIR)


def warn_of_others() -> None:
    """Name variables of the shell that do not count in the stack."""
    names = of_others()
    if names:
        warn(f"left out of the stack, as they set up another Spark, Airflow or Hadoop: {', '.join(names)}")


class ProgressView:
    """A view with a line per component on stderr: live on a terminal, a line per change elsewhere."""

    def __init__(self) -> None:
        self._rows: dict[str, tuple[str, str, float]] = {}
        self._started_s = time.monotonic()
        self._lock = threading.Lock()
        self._live = Live(console=error_console, get_renderable=self._render, refresh_per_second=8)

    def __enter__(self) -> ProgressView:
        if error_console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *unused: object) -> None:
        if error_console.is_terminal:
            self._live.stop()

    def __call__(self, name: str, phase: str, note: str) -> None:
        with self._lock:
            self._rows[name] = (phase, note, time.monotonic())
            if not error_console.is_terminal and phase != "waiting":
                elapsed_s = time.monotonic() - self._started_s
                error_console.print(f"{elapsed_s:5.1f} s  {name:22} {phase}  {note}")

    def _render(self) -> Table:
        table = Table.grid(padding=(0, 2))
        with self._lock:
            for name, (phase, note, at_s) in self._rows.items():
                table.add_row(
                    _MARKS.get(phase, "…"),
                    name,
                    phase,
                    f"{at_s - self._started_s:.1f} s",
                    f"[dim]{note}[/dim]",
                )
        return table


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _ports(items: list[str]) -> dict[str, int]:
    ports = {}
    for item in items:
        name, _, number = item.partition("=")
        if not number.isdecimal() or not 0 < int(number) < 65536:
            raise DefinitionError("wrong --port", expected="NAME=NUMBER", found=repr(item))
        ports[name] = int(number)
    return ports


def started_ports(state: StackState) -> dict[str, int]:
    """Return the ports of the parts that were started. Ports of other parts are only reserved."""
    return {
        name: number
        for name, number in state.ports.items()
        if PORT_OWNERS.get(name, name) in state.components
    }


@app.command()
def up(
    dir: DirOption = _DIR,
    only: Annotated[str, typer.Option(help="Only these components, separated by commas.")] = "",
    port: Annotated[
        list[str] | None,
        typer.Option(help="NAME=NUMBER. Repeatable. A free port replaces one that is in use."),
    ] = None,
    stream_load: Annotated[
        bool, typer.Option("--stream-load", help="Also start a front end and a storage node.")
    ] = False,
    mariadb: Annotated[
        bool, typer.Option("--mariadb", help="Also start MariaDB, which stores the ledger of loads.")
    ] = False,
    also_named: Annotated[
        str,
        typer.Option(
            "--with", help="Also start these components, separated by commas: hbase, spark, kafka-2, kafka-3."
        ),
    ] = "",
    as_json: JsonOption = False,
) -> None:
    """Start all components that do not run, and wait until they answer. Harmless when all run."""
    started_s = time.monotonic()
    stack = Stack(StackLayout(dir))
    warn_of_others()
    with ProgressView() as progress:
        also = (("stream-load", "storage") if stream_load else ()) + (("mariadb",) if mariadb else ())
        also += tuple(_names(also_named))
        state = stack.up(_names(only), _ports(port or []), progress, also=also)
    if as_json:
        print_json(
            {
                "dir": str(stack.layout.root),
                "ports": started_ports(state),
                "components": state.components,
                "seconds": round(time.monotonic() - started_s, 1),
            }
        )
        return
    success(f"{len(state.components)} components answer after {time.monotonic() - started_s:.1f} s")
    for name, port_number in started_ports(state).items():
        console.print(f"  {name:20} 127.0.0.1:{port_number}")
    if "airflow-api" in state.components:
        console.print(f"\nAirflow   {airflow_line(stack.layout, state.ports)}", soft_wrap=True)
    if "query" in state.components:
        console.print(f"SQL       {mysql_line(stack.layout, state.ports)}", soft_wrap=True)
    if "stream-load" in state.components:
        console.print(f"Load      {load_line(stack.layout, state.ports)}", soft_wrap=True)
    console.print(f"Settings  . {stack.layout.env_file}", soft_wrap=True)


@app.command()
def down(dir: DirOption = _DIR, as_json: JsonOption = False) -> None:
    """Stop every process of the stack. Data, logs and secrets stay."""
    stack = Stack(StackLayout(dir))
    if not as_json and load_state(stack.layout) is None:
        success(f"there is no stack in {stack.layout.root}: nothing to stop")
        return
    with ProgressView() as progress:
        left = stack.down(progress)
    if as_json:
        print_json({"swept": left})
        return
    if left:
        warn(f"{left} processes had outlived their component and were ended")
    success("nothing of the stack runs any more")


@app.command()
@repeatable
def status(dir: DirOption = _DIR, as_json: JsonOption = False) -> None:
    """Show each component. Exits with 3 when one is down."""
    parts = Stack(StackLayout(dir)).status()
    complete = bool(parts) and all(part.state == "ready" for part in parts)
    if as_json:
        print_json({"ok": complete, "components": parts})
    else:
        print_table(
            ["component", "state", "address", "pid", "up (s)"],
            [(part.name, part.state, part.address, part.pid, part.uptime_s) for part in parts],
        )
        for part in parts:
            if part.problem:
                warn(f"{part.name} is {part.state}: {part.problem}")
    if not complete:
        raise typer.Exit(EXIT_PART_DOWN)


@app.command()
def logs(
    name: Annotated[str | None, typer.Argument(help="Name of the component. Default: all.")] = None,
    dir: DirOption = _DIR,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Continue until interrupted.")] = False,
    lines: Annotated[
        int, typer.Option("--lines", "-n", min=0, help="Number of lines from the end.")
    ] = _TAIL_LINES,
) -> None:
    """Print the end of the logs."""
    width = shutil.get_terminal_size().columns
    followers = []
    for part, path in Stack(StackLayout(dir)).log_paths(name):
        if not path.exists():
            continue
        if name is None:
            sys.stdout.write(f"── {part} {'─' * max(0, min(width, 100) - len(part) - 4)}\n")
        followers.append((part, Follower(path)))  # before the end is read: nothing falls between the two
        sys.stdout.writelines(f"{line}\n" for line in last_lines(path, lines))
    try:
        while follow:
            for part, log in followers:
                for line in log.new_lines():
                    sys.stdout.write(line if name else f"{part}: {line}")
            sys.stdout.flush()
            time.sleep(_FOLLOW_POLL_S)
    finally:
        for _, log in followers:
            log.close()
