"""`rtolap agent` runs the host's agent, and shows its processes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from rtolap.agent import server
from rtolap.agent.commands import Commands
from rtolap.agent.cpus import host_processors, parse_cpus
from rtolap.agent.host import Host
from rtolap.agent.spark_allowed import read_spark_allowed
from rtolap.base.settings import Settings
from rtolap.cli.output import JsonOption, print_table, success
from rtolap.cli.serving import service_settings
from rtolap.cli.watching import repeatable
from rtolap.protocols.agent.client import AgentClient
from rtolap.servers.limits import HttpLimits

app = typer.Typer(no_args_is_help=True, help="The agent of this host and its processes.")


def _client(settings: Settings) -> AgentClient:
    return AgentClient(settings.agent_url(), settings.token())


@app.command()
def serve(
    jobs_dir: Annotated[
        Path | None,
        typer.Option(help="Folder of the Spark jobs that may run; otherwise RTOLAP_SPARK_JOBS_DIR."),
    ] = None,
    stop_on_exit: Annotated[
        bool, typer.Option("--stop-on-exit", help="Stop all processes when the agent ends.")
    ] = False,
) -> None:
    """Run the agent until SIGTERM. Its processes go on unless --stop-on-exit is given."""
    settings = service_settings()
    server.run(
        server.serve(
            folder=settings.data_dir / "agent",
            commands=Commands(
                Host(
                    jobs_dir or settings.spark_jobs_dir,
                    settings.data_dir,
                    settings.object_store,
                    settings.spark_master,
                    settings.spark_host,
                    settings.fleet_sources,
                    read_spark_allowed(settings.spark_allowed),
                    settings.agent_spark_warm_s,
                )
            ),
            host=settings.host,
            port=settings.agent_port,
            token=settings.token(),
            limits=HttpLimits.from_settings(settings),
            stop_on_exit=stop_on_exit,
            cpus=parse_cpus(settings.agent_cpus, host_processors()),
        )
    )


@app.command("list")
@repeatable
def list_processes(as_json: JsonOption = False) -> None:
    """Show the processes of this host."""
    with _client(Settings()) as client:
        processes = client.processes()
    print_table(
        ("process", "generation", "state", "pid", "restarts", "reason"),
        [(p.key, p.generation, p.state, p.pid, p.restarts, p.reason) for p in processes],
        as_json=as_json,
    )


@app.command("log")
def show_log(
    key: str,
    bytes_max: Annotated[
        int, typer.Option("--bytes", min=1, max=1 << 20, help="Number of bytes from its end.")
    ] = 65_536,
) -> None:
    """Print the end of a process's log."""
    with _client(Settings()) as client:
        typer.echo(client.log(key, bytes_max), nl=False)


@app.command("stop")
def stop_process(key: str) -> None:
    """Stop a process. Airflow starts it again if its task has retries left."""
    with _client(Settings()) as client:
        status = client.stop(key, client.get(key).generation)
    success(f"{status.key} generation {status.generation}: {status.state} ({status.reason})")


@app.command()
def shutdown(
    leave_processes: Annotated[
        bool, typer.Option("--leave-processes", help="End the agent only; the next one adopts them.")
    ] = False,
) -> None:
    """Stop all processes and the agent."""
    with _client(Settings()) as client:
        client.shutdown(stop_processes=not leave_processes)


@app.command()
def sleep(
    seconds: Annotated[float, typer.Option(min=0, help="Seconds to sleep.")] = 3600.0,
    exit_code: Annotated[int, typer.Option(min=0, max=125, help="Exit code at the end.")] = 0,
) -> None:
    """Sleep for a while. It tries out an agent, a lease or a DAG without load."""
    typer.echo(f"sleeping for {seconds:g} s, then exit code {exit_code}")
    time.sleep(seconds)
    raise typer.Exit(exit_code)
