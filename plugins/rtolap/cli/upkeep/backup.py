"""`rtolap backup` and `rtolap restore`: the cluster's metadata, from ZooKeeper and back into it."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

import rtolap
from rtolap.backup.file_format import Header, encode, read_backup, write_backup
from rtolap.backup.restoring import RestorePlan, plan_restore, restore, take_backup
from rtolap.base.clock import SystemClock
from rtolap.base.errors import AlreadyExists, DefinitionError
from rtolap.base.settings import Settings
from rtolap.cli.kafka_access import kafka_connections
from rtolap.cli.output import JsonOption, console, print_json, print_table, success
from rtolap.metadata.cluster_store import open_cluster_store
from rtolap.model.quantities import instant_text
from rtolap.object_store.store import open_store

app = typer.Typer()

SUFFIX = ".rtolap-backup"


@app.command("backup")
def backup(
    target: Annotated[
        Path,
        typer.Argument(help="File to write, which must not exist, or a folder for a file with the time."),
    ],
    as_json: JsonOption = False,
) -> None:
    """Write the cluster's metadata of one moment into a file, while the cluster works on.

    It holds definitions, assignments, segments, applications, publications and the fleet's registry. It holds
    no events, no history, no stored tables and no secrets.
    """
    settings, clock = Settings(), SystemClock()
    cluster, token = _cluster(settings), settings.token()
    with closing(open_cluster_store(settings)) as store:
        header, records = take_backup(store, clock, cluster=cluster, token=token, program=rtolap.__version__)
    path = target / _file_name(header) if target.is_dir() else target
    if path.exists():
        raise AlreadyExists(f"{path} exists", action="name another file")
    write_backup(path, encode(header, records, token))
    written = read_backup(path, cluster=cluster, token=token).header  # what is on the disk now
    if as_json:
        print_json({"file": path, "header": written, "size_bytes": path.stat().st_size})
        return
    success(
        f"{path}: {written.records} records of {cluster}, read {written.passes} times until they stood still"
    )
    console.print("Stored tables and loaders are in the ledger: back up its database too.")


@app.command("restore")
def restore_backup(
    file: Annotated[Path, typer.Argument(help="File that `rtolap backup` has written.")],
    plan_only: Annotated[
        bool, typer.Option("--plan", help="Show what it would mean, and change nothing.")
    ] = False,
    overwrite: Annotated[
        str, typer.Option("--overwrite", help="Name of the cluster whose present metadata is deleted.")
    ] = "",
    despite_losses: Annotated[
        bool,
        typer.Option("--despite-losses", help="Go on although something that it refers to is gone."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Restore the metadata of a cluster whose services are all stopped.

    It is compared with Kafka and the object store first. Receivers read from Kafka again what restored
    history does not hold, so no event is counted twice and none is passed over in silence.
    """
    settings, clock = Settings(), SystemClock()
    cluster = _cluster(settings)
    if overwrite and overwrite != cluster:
        raise DefinitionError("--overwrite names another cluster", expected=cluster, found=overwrite)
    saved = read_backup(file, cluster=cluster, token=settings.token())
    files = open_store(settings.object_store)
    with closing(kafka_connections(settings, "rtolap-restore")) as kafka:
        plan = plan_restore(saved, clock, files, kafka.admin)
    if not as_json:
        _show(plan)
    if not plan_only:
        with closing(open_cluster_store(settings, restores=True)) as store:
            restore(plan, store, clock, files, overwrite=bool(overwrite), lacking=despite_losses)
    if as_json:
        print_json({"restored": not plan_only, "header": plan.header, "findings": plan.findings})
    elif not plan_only:
        success(f"{len(plan.carried.records)} records are restored: start the services")


def _show(plan: RestorePlan) -> None:
    header = plan.header
    made = instant_text(header.made_ms)
    console.print(f"{header.records} records of {header.cluster}, of {made}")
    if plan.findings:
        rows = [(each.outcome, each.subject, each.message, each.action) for each in plan.findings]
        print_table(("outcome", "subject", "what", "what to do"), rows)


def _cluster(settings: Settings) -> str:
    return "/" + settings.zookeeper_root.strip("/")


def _file_name(header: Header) -> str:
    stamp = instant_text(header.made_ms).translate({ord(" "): "T", ord(":"): None, ord("-"): None})
    return f"{header.cluster.strip('/').replace('/', '.')}-{stamp}{SUFFIX}"
