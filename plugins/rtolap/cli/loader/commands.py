"""`rtolap loader` runs and shows loaders of topics into tables.

Exit codes: 0 done; 1 an error, reported on stderr; `run` ends with those of
`rtolap.protocols.loader.messages`; `status` and `lag` with 3 when a job has failed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from rtolap.agent.processes import GENERATION_VARIABLE, KEY_VARIABLE
from rtolap.base.addresses import PORT_MAX
from rtolap.base.clock import SystemClock
from rtolap.base.cycle_collection import keep_blocks
from rtolap.base.errors import DefinitionError, Unavailable
from rtolap.base.settings import Settings
from rtolap.cli.kafka_access import kafka_connections, open_consumer
from rtolap.cli.loader.dead_letters import JobArgument
from rtolap.cli.loader.dead_letters import app as dead_letters
from rtolap.cli.output import JsonOption, console, print_json, print_table, report, success, warn
from rtolap.cli.serving import service_settings
from rtolap.cli.watching import repeatable
from rtolap.kafka.schema_registry import SchemaRegistries
from rtolap.model.loader import Loader
from rtolap.model.offsets import Offsets
from rtolap.model.yaml_files import read_definitions
from rtolap.protocols.agent.client import AgentClient
from rtolap.protocols.agent.messages import RESTARTS_VARIABLE
from rtolap.protocols.loader.messages import EXIT_FAILED, LoaderList, LoaderStatus, process_key
from rtolap.servers.limits import HttpLimits
from rtolap.stored.loader.assembly import (
    check_loader_rights,
    partition_endpoint,
    reject_box,
    sink_of,
)
from rtolap.stored.loader.http import LoaderEndpoint
from rtolap.stored.loader.job import JobResources, SharedResources, read_config
from rtolap.stored.loader.operations import JobAccess, job_access
from rtolap.stored.loader.runner import run as run_job
from rtolap.stored.loader.states import RECREATED_ACTION, StopCause
from rtolap.stored.metastore.load_jobs import LoadJobEvent, LoadJobState
from rtolap.watermark_client.client import WatermarkClient

app = typer.Typer(no_args_is_help=True, help="Loaders: topics into tables, exactly once.")
app.add_typer(dead_letters, name="dead-letters")

WaitOption = Annotated[float, typer.Option("--wait-s", min=0, help="Seconds to wait until it is done.")]


@app.command()
def create(
    path: Annotated[Path, typer.Argument(help="Definition file, or a folder of them.")],
    as_json: JsonOption = False,
) -> None:
    """Create loaders. An existing loader uses a changed definition for its next batches."""
    loaders = read_definitions(path).loaders
    if not loaders:
        raise DefinitionError(f"no loaders in {path}", expected="documents of kind: loader")
    with job_access(Settings()) as access:
        statuses = [access.status(access.declare(loader)) for loader in loaders.values()]
    messages = (f"loader {it.job}: {it.topic} into {it.database}.{it.table}, {it.state}" for it in statuses)
    report(LoaderList(tuple(statuses)), *messages, as_json=as_json)


@app.command()
def run(
    job: JobArgument,
    port: Annotated[
        int, typer.Option(min=0, max=PORT_MAX, help="Port of its endpoint; 0 takes a free one.")
    ] = 0,
    process: Annotated[
        int, typer.Option(min=0, help="Number of the process, for a job that several processes share.")
    ] = 0,
) -> None:
    """Load in this process until the job is stopped or fails.

    It also starts a job that was stopped or has failed. The agent's restart of a crashed process does not.
    """
    settings = service_settings()
    keep_blocks()
    with job_access(settings) as access:
        loader = read_config(access.jobs.get(job)).loader
        sink = sink_of(loader, settings)
        connections = kafka_connections(settings, f"rtolap-loader-{job}")
        box = reject_box(loader, settings, connections)
        agent = AgentClient(settings.agent_url(), settings.token())
        registries = SchemaRegistries.of_host(settings)
        resources = JobResources(
            access.jobs,
            access.records,
            sink,
            lambda loader: open_consumer(connections, loader, f"rtolap-loader-{job}", settings),
            box,
            SystemClock(),
            registries.get,
        )

        def check_rights(loader: Loader) -> None:
            if (registry := loader.record_format.registry) is not None:
                registries.get(registry)
            check_loader_rights(loader, connections)

        code = run_job(
            job,
            resources,
            LoaderEndpoint(
                settings.host,
                settings.reached_at(),
                port,
                settings.token(),
                HttpLimits.from_settings(settings),
                connections.statistics.show,
                access.dead_letters(job, lambda _: sink, registries.get),
            ),
            open_watermarks=lambda application: WatermarkClient(
                settings.coordinator_urls(), settings.token(), application
            ),
            partition_session=lambda sink, wanted: partition_endpoint(sink, wanted).session,
            check_rights=check_rights,
            start=_start_by_agent(),
            again=os.environ.get(RESTARTS_VARIABLE, "0") != "0",
            number=process,
            shared=SharedResources(resources, access.shares, access.share_records, check_rights),
            agent=agent,
        )
        agent.close()
        box.close()
        connections.close()
        sink.close()
    raise typer.Exit(code)


@app.command()
def start(job: JobArgument, wait_s: WaitOption = 0.0, as_json: JsonOption = False) -> None:
    """Have the agent of this host run the loader. Failed batches are tried again."""
    with job_access(Settings()) as access:
        access.start(job)
        _report(access, job, wait_s, lambda status: status.alive, "runs", as_json=as_json)


@app.command()
def stop(job: JobArgument, wait_s: WaitOption = 60.0, as_json: JsonOption = False) -> None:
    """Stop the loader. It finishes its active batches and loses nothing."""
    with job_access(Settings()) as access:
        access.stop(job, "stopped by command")
        _report(access, job, wait_s, lambda status: not status.alive, "is stopped", as_json=as_json)


@app.command()
def pause(job: JobArgument, as_json: JsonOption = False) -> None:
    """Pause reading. The loader's process goes on running."""
    with job_access(Settings()) as access:
        access.jobs.change_state(job, LoadJobEvent.PAUSE, "paused by command")
        _report(access, job, 0.0, lambda status: True, "is paused", as_json=as_json)


@app.command()
def resume(job: JobArgument, as_json: JsonOption = False) -> None:
    """Continue reading after a pause."""
    with job_access(Settings()) as access:
        access.jobs.change_state(job, LoadJobEvent.RESUME, "")
        _report(access, job, 0.0, lambda status: True, "goes on", as_json=as_json)


@app.command()
def restart(job: JobArgument, wait_s: WaitOption = 60.0, as_json: JsonOption = False) -> None:
    """Stop the loader, and start it again."""
    with job_access(Settings()) as access:
        access.restart(job, "restarted by command", wait_s)
        _report(access, job, wait_s, lambda status: status.alive, "runs", as_json=as_json)


@app.command()
def reset(
    job: JobArgument,
    at: Annotated[
        str, typer.Option("--at", help="Offset to begin at in every partition, such as 0=120,1=90.")
    ] = "",
    go_on: Annotated[
        bool,
        typer.Option(
            "--go-on", help="Begin after the loaded records, or at the present beginning of the topic."
        ),
    ] = False,
    abandon: Annotated[
        bool,
        typer.Option(
            "--abandon", help="Reset even if rows of sent batches may be in the table or may still arrive."
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Begin a new incarnation of the loader, with new labels. Rows in the table stay.

    It begins where its definition says, so that it loads records again, unless --at or --go-on is given."""
    if at and go_on:
        raise DefinitionError(
            "the loader needs one place to begin at", expected="--at or --go-on", found="both"
        )
    start_at = _offsets(at) if at else None
    with job_access(Settings()) as access:
        loader = read_config(access.jobs.get(job)).loader
        start = at or ("where it was" if go_on else loader.start)
        if not yes:
            typer.confirm(f"Load {loader.topic} again from {start}? Its rows stay.", abort=True)
        access.define_again(job, start_at, go_on=go_on, abandon=abandon)
        _report(access, job, 0.0, lambda status: True, f"starts over at {start}", as_json=as_json)


@app.command()
def settle(
    job: JobArgument,
    batch: Annotated[int, typer.Argument(min=0, help="Number of the batch: the last part of its label.")],
    loaded: Annotated[
        bool,
        typer.Option("--loaded/--not-loaded", help="The rows of the batch are in the table, or are not."),
    ],
    share: Annotated[
        int | None, typer.Option(min=0, help="Share of the batch, where several processes share the job.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """State whether a batch is in the table, for a loader that stopped as label_forgotten, and start it."""
    with job_access(Settings()) as access:
        access.settle(job, batch, loaded=loaded, share=share)
        words = f"takes batch {batch} as {'loaded' if loaded else 'not loaded'}"
        _report(access, job, 0.0, lambda status: True, words, as_json=as_json)


@app.command()
@repeatable
def status(
    job: Annotated[str | None, typer.Argument(help="Name of the loader. Default: all.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the state of loaders: liveness, lag, throughput, the last error, why one has stopped."""
    with job_access(Settings()) as access:
        jobs = (access.jobs.get(job),) if job else access.jobs.all()
        statuses = tuple(access.status(each) for each in jobs)
    if as_json:
        print_json(LoaderList(statuses))
    else:
        print_table(
            ("loader", "state", "alive", "phase", "lag", "rows/s", "pending"),
            [
                (
                    loader.job,
                    loader.state,
                    "yes" if loader.alive else "no",
                    loader.phase,
                    loader.lag_records,
                    round(loader.rows_per_s),
                    loader.pending,
                )
                for loader in statuses
            ],
        )
        for loader in statuses:
            if loader.processes:
                _print_processes(loader)
        for loader in statuses:
            for failure in _failures(loader):
                console.print(f"{loader.job}: {failure}", soft_wrap=True, markup=False)
    _exit_by(statuses)


@app.command()
@repeatable
def lag(job: JobArgument, as_json: JsonOption = False) -> None:
    """Show how many records of the topic are not in the table yet, by partition."""
    with job_access(Settings()) as access:
        status = access.status(access.jobs.get(job))
    if status.lag_records is None:
        raise Unavailable(f"the end of topic {status.topic} is not known")
    print_table(
        ("partition", "loaded", "log_end", "lag"),
        [
            (partition, status.loaded.get(partition, 0), end, max(0, end - status.loaded.get(partition, 0)))
            for partition, end in sorted(status.log_ends.items())
        ],
        as_json=as_json,
    )
    _exit_by((status,))


def _start_by_agent() -> str | None:
    """Return what names this start of the process, however often a crash brings it back; None without an
    agent."""
    generation = os.environ.get(GENERATION_VARIABLE)
    return None if generation is None else f"{os.environ[KEY_VARIABLE]} generation {generation}"


def _print_processes(status: LoaderStatus) -> None:
    """Print the processes that share the partitions, each with its figures."""
    print_table(
        ("process", "alive", "leads", "phase", "partitions", "lag", "rows/s"),
        [
            (
                process.number,
                "yes" if process.alive else "no",
                "yes" if process.leads else "no",
                process.phase,
                ",".join(map(str, process.partition_numbers)),
                process.lag_records,
                round(process.rows_per_s),
            )
            for process in status.processes
        ],
    )
    living = sum(process.alive for process in status.processes)
    console.print(
        f"{status.job}: {status.shares} shares; {status.processes_wanted} processes wanted, {living} live",
        soft_wrap=True,
    )


def _failures(status: LoaderStatus) -> Iterator[str]:
    """Yield the failures for which a row of the table has no space."""
    if status.reason:
        yield status.reason
    if status.state == LoadJobState.RUNNING and not status.alive:
        key = process_key(status.job)
        yield f"no process of it answers; `rtolap agent list` and `rtolap agent log {key}` show more"
    if status.topic_id and status.log_topic_id not in ("", status.topic_id) and not status.stop_cause:
        yield (
            f"{StopCause.TOPIC_RECREATED}: topic {status.topic} was deleted and recreated, and nothing of"
            f" it is loaded; {RECREATED_ACTION}"
        )
    if status.last_error:
        yield f"last error: {status.last_error}"
    if status.partitions is not None and status.partitions.last_error:
        yield f"partitions: {status.partitions.state}: {status.partitions.last_error}"


def _report(
    access: JobAccess,
    job: str,
    wait_s: float,
    is_so: Callable[[LoaderStatus], bool],
    words: str,
    *,
    as_json: bool,
) -> None:
    status = access.wait(job, wait_s, is_so) if wait_s > 0 else access.status(access.jobs.get(job))
    if as_json:
        print_json(status)
    elif is_so(status):
        success(f"loader {job} {words}")
    else:
        warn(f"loader {job} is wanted {status.state}; `rtolap loader status {job}` shows how far it is")


def _exit_by(statuses: tuple[LoaderStatus, ...]) -> None:
    if any(status.state == LoadJobState.FAILED for status in statuses):
        raise typer.Exit(EXIT_FAILED)


def _offsets(text: str) -> Offsets:
    offsets: Offsets = {}
    for part in text.split(","):
        partition, equals, at = part.partition("=")
        if not (equals and partition.strip().isdigit() and at.strip().isdigit()):
            raise DefinitionError("not offsets", expected="PARTITION=OFFSET, comma-separated", found=part)
        offsets[int(partition)] = int(at)
    return offsets
