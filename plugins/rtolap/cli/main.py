"""`rtolap` mounts the command modules.

The one place where modules are imported by name: each is loaded when its command is used, so that
`rtolap --help` and completion do not pay for Kafka, pyarrow and FastAPI. A name that does not load fails
with its own ImportError; a test loads them all.
"""

from __future__ import annotations

import atexit
import functools
import gc
import importlib
from dataclasses import dataclass
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_group

import rtolap
from rtolap.base.errors import DefinitionError, Unavailable
from rtolap.base.hidden_pandas import hide_pandas
from rtolap.cli.local.running_stack import adopt_running_stack, no_stack_note
from rtolap.cli.output import EXIT_ERROR, console, end_now, errors, warn
from rtolap.cli.standard_streams import set_up_standard_streams


@dataclass(frozen=True)
class Mount:
    """The place of a command.

    Attributes:
        module: Module with the typer application.
        command: One command of that application. None for all of it.
        adopt: Serve a running local stack by default.
        asks: The command cannot do without a cluster.
    """

    module: str
    help: str
    command: str | None = None
    adopt: bool = True
    asks: bool = True


MOUNTS: dict[str, Mount] = {
    "agent": Mount("rtolap.cli.agent", "The agent of this host and its processes."),
    "airflow-settings": Mount(
        "rtolap.cli.airflow_settings", "Apply airflow_settings.yaml to any Airflow.", adopt=False
    ),
    "demo": Mount(
        "rtolap.cli.local.demo", "Replay real events and compare every answer.", "demo", adopt=False
    ),
    "stack": Mount("rtolap.cli.local.stack", "Start, stop and show the local stack.", adopt=False),
    "doctor": Mount(
        "rtolap.cli.local.doctor",
        "Look at every server, and say what mends what is wrong.",
        "doctor",
        asks=False,
    ),
    "support-bundle": Mount(
        "rtolap.cli.local.support_bundle",
        "Collect what helps others to find a fault, without secrets.",
        "support-bundle",
        asks=False,
    ),
    "backup": Mount(
        "rtolap.cli.upkeep.backup", "Write the cluster's metadata of one moment into a file.", "backup"
    ),
    "restore": Mount(
        "rtolap.cli.upkeep.backup",
        "Restore the metadata of a stopped cluster.",
        "restore",
    ),
    "init": Mount(
        "rtolap.cli.local.init", "Guess the first definitions of a topic from its records.", "init"
    ),
    "validate": Mount(
        "rtolap.cli.definitions", "Check definitions without a cluster.", "validate", asks=False
    ),
    "create": Mount("rtolap.cli.definitions", "Create tables, lookups and cubes.", "create"),
    "describe": Mount("rtolap.cli.definitions", "Show a table, lookup or cube.", "describe"),
    "alter": Mount("rtolap.cli.cubes.alter", "Change settings of running cubes.", "alter"),
    "drop": Mount("rtolap.cli.definitions", "Drop a table, lookup or cube.", "drop"),
    "sql": Mount("rtolap.cli.sql", "Run SQL statements, interactively or with -e.", "sql"),
    "query": Mount("rtolap.cli.query", "Run the query service."),
    "spark": Mount("rtolap.cli.spark", "Run the Spark service of large reads of history."),
    "produce": Mount("rtolap.cli.produce", "Send records to a topic.", "produce"),
    "dead-letters": Mount("rtolap.cli.dead_letters", "Records that were refused, and why."),
    "dump": Mount("rtolap.cli.format", "Show the content of a fragment or manifest.", "dump", adopt=False),
    "verify": Mount(
        "rtolap.cli.format", "Check every byte of a fragment or manifest.", "verify", adopt=False
    ),
    "segments": Mount(
        "rtolap.cli.cubes.segments",
        "Segments of a cube: list, show, close, requeue, verify, accept-loss, purge.",
    ),
    "build": Mount("rtolap.cli.cubes.build", "Builds of closed segments."),
    "cube": Mount("rtolap.cli.cubes.sizing", "Sizes of cubes, and groups that would pay."),
    "batch": Mount("rtolap.cli.cubes.batches", "Batches: what another source says of a range."),
    "receivers": Mount("rtolap.cli.receivers", "Receivers and replica sets."),
    "loader": Mount("rtolap.cli.loader.commands", "Loaders: topics into tables, exactly once."),
    "sep": Mount("rtolap.cli.sep.commands", "HBase change capture: subscriptions and their progress."),
    "fleet": Mount("rtolap.cli.fleet.commands", "Kafka brokers: audit, plans, moves, monitoring."),
    "publish": Mount("rtolap.cli.publish", "Publications: history as Iceberg tables."),
    "storage": Mount("rtolap.cli.storage", "Run a storage node of stored tables."),
    "receiver": Mount("rtolap.cli.receiver", "Run a receiver."),
    "watermark": Mount(
        "rtolap.cli.watermark.commands", "Watermarks: progress, what holds them back, pictures."
    ),
    "tables": Mount("rtolap.cli.tables", "Stored tables: list, show, partitions, drop, truncate."),
    "stream-load": Mount("rtolap.cli.stream_load", "Run the HTTP endpoint for loads of stored tables."),
    "coordinator": Mount("rtolap.cli.coordinator", "Run a coordinator, or show its state."),
}


@functools.cache
def load(name: str) -> Any:
    """Return the command behind a name, which is made once per process."""
    mount = MOUNTS[name]
    group = get_group(importlib.import_module(mount.module).app)
    command: Any = group if mount.command is None else group.commands[mount.command]
    command.name = name
    return command


class MountingGroup(TyperGroup):
    """Lists the mounted names with their help, and loads the one that is used."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        if args and args[0] in MOUNTS:
            if MOUNTS[args[0]].adopt and not ctx.resilient_parsing:
                adopt_running_stack()
            command = load(args[0])
            if not gc.isenabled():
                gc.freeze()
                gc.enable()
            return args[0], command, args[1:]
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (Unavailable, DefinitionError):
            mount = MOUNTS.get(ctx.invoked_subcommand or "")
            note = no_stack_note() if mount is not None and mount.adopt and mount.asks else None
            if note is not None:
                warn(note)
            raise


def _print_version(wanted: bool) -> None:
    if wanted:
        console.print(f"rtolap {rtolap.__version__}")
        raise typer.Exit


app = typer.Typer(
    name="rtolap",
    cls=MountingGroup,
    help="Real-time OLAP on Kafka, orchestrated by Airflow, built by Spark.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@app.callback()
def root(
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
    ),
) -> None:
    """Options of `rtolap` itself."""


def _unmounted() -> None:
    raise AssertionError("MountingGroup resolves every mounted name before this")


for _name, _mount in MOUNTS.items():
    app.command(_name, help=_mount.help)(_unmounted)


@dataclass
class _Ending:
    """Ends the process with `status`, which stays that of a failure unless the command says otherwise."""

    status: int = EXIT_ERROR

    def __call__(self) -> None:
        end_now(self.status)


def main() -> None:
    """Run the command of the command line.

    Its imports stay to the end of the process, so no look for cycles is spent on them: those looks are a
    third of a short command, most of them as it ends. So the process ends at once when its threads and the
    functions registered for its end are done.
    """
    set_up_standard_streams()
    hide_pandas()
    gc.disable()
    ending = _Ending()
    atexit.register(ending)  # first, so that it runs after what the command's libraries register
    try:
        with errors():
            app()
    except SystemExit as ended:
        ending.status = ended.code if isinstance(ended.code, int) else EXIT_ERROR * bool(ended.code)
        raise
    finally:
        gc.enable()


if __name__ == "__main__":
    main()
