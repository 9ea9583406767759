"""What the product starts takes the ids of its maker along, or is named here as work of nobody's request."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.paths import PLUGINS

ROOT = PLUGINS.parent
ALONE = {"Thread", "Timer", "ThreadPoolExecutor", "ProcessPoolExecutor", "Popen", "start_new_thread"}
ALONE |= {"create_subprocess_exec", "create_subprocess_shell", "subprocess_exec", "subprocess_shell"}
OF_MODULES = {
    "subprocess": {"run", "call", "check_call", "check_output", "getoutput", "getstatusoutput"},
    "os": {"fork", "forkpty", "system", "popen", "posix_spawn", "posix_spawnp"},
    "multiprocessing": {"Process", "Pool"},
    "pty": {"fork", "spawn"},
}
OF_SPARK = {"mapInArrow", "mapInPandas", "map", "flatMap", "mapPartitions", "foreach"}
OF_SPARK |= {"mapPartitionsWithIndex", "foreachPartition", "applyInArrow", "applyInPandas", "cogroup"}

HANDED_OVER = {
    "agent/processes.py Processes.spawn": "the variable RTOLAP_IDS, of one-shot processes: `agent.lifecycle`",
    "agent/runner.py run": "the environment, which the command inherits",
    "agent/warm_launcher.py _started": "each job's request to the driver; the driver outlives its jobs",
    "query/workers/starter.py Starter._start_server": "the message Begin of each statement",
    "query/workers/fork_server.py main": "the message Begin of each statement",
    "cubes/receiver/runner.py CubeRunner._thread": "the cube, and the move that it warms up for",
}
NO_REQUEST = {
    # what serves until the process ends; each request that comes there has ids of its own
    "cubes/receiver/process.py ReceiverService.__init__": "control and heartbeats of all cubes",
    "query/mysql/server.py MySqlServer.start": "accepts connections",
    "query/mysql/server.py MySqlServer._begin": "serves a connection: each command is a request",
    "servers/flight_guard/relay.py FlightRelay.__init__": "relays bytes of all connections",
    "servers/metrics_server.py MetricsServer.__init__": "answers Prometheus",
    "servers/flight_server.py shut_down": "ends a server",
    "stored/loader/http.py LoaderEndpoint.serve": "serves the endpoint",
    "stored/node/load_door.py LoadDoor.__init__": "serves bodies",
    "sep/consumer/server.py ConsumerServer.__init__": "decodes HBase's calls, which bring no ids",
    "sep/shares/router.py Router.__init__": "forwards HBase's calls, which bring no ids",
    # what goes on by itself, for nobody in particular
    "coordinator/leadership.py Leadership.start": "the leader's duties",
    "coordinator/assembly.py Coordinator.__init__": "checks and relief, the leader's own",
    "coordinator/applications/host_lists.py HostLists.__init__": "reads host lists every few seconds",
    "metadata/dispatch.py Dispatcher.__init__": "events of ZooKeeper",
    "query/cancel.py Timeouts.__init__": "time limits of all statements",
    "query/cluster/remembered.py Remembered.__post_init__": "looks that many statements share",
    "query/history_cache/keeper.py HistoryKeeper.start": "copies of the newest history",
    "query/mysql/client_watch.py ClientWatch.__init__": "sees that clients are gone",
    "query/query_log/log.py QueryLog.__init__": "writes entries of all statements",
    "query/workers/pool.py WorkerPool.__init__": "looks at the memory of all workers",
    "query/workers/process.py serve": "hears interrupts",
    "cubes/build/serving.py _served": "ends a driver whose launcher is gone",
    "sep/consumer/log_bounds.py LogBounds.__init__": "bounds of HBase's logs",
    "sep/delivery/serving.py DeliveryThread.__init__": "delivery of all events",
    "sep/listeners/callable.py Lanes.__init__": "calls a listener with events",
    "stored/loader/process.py LoaderProcess.run": "roles of a loader",
    "stored/loader/shares/process.py SharedLoaderProcess.run": "roles of a loader",
    "stored/loader/shares/share_run.py ShareRun.__init__": "a share of a loader's partitions",
    "stored/loader/shares/status.py ask_processes": "a command asks all processes of a loader",
    "stored/loader/starting.py stop_with": "waits for signals",
    "stored/node/compactor.py Compactor.__init__": "compaction of all tablets",
    "stored/node/scrubber.py Scrubber.__init__": "reads of all tablets",
    "stored/stream_load/periodic_task.py PeriodicTask.__init__": "a task of a service, again and again",
    "watermark/records/leases.py ProducerLeases.__init__": "leases of producers",
    "watermark/records/producer.py WatermarkedProducer.__init__": "control records of a producer",
    "watermark_client/client.py WatermarkClient.__init__": "reports of an application",
    # commands and pages: a person sees what they say, and no service works for them by these
    "airflow/page/answers.py ask_all": "parts of a page, each a request of its own",
    "cli/airflow_settings.py run_airflow": "runs `airflow`",
    "cli/progress.py progress_of": "shows progress",
    "demo/run.py Demo.run": "sends events of the demonstration",
    "doctor/bundle/sources.py collect": "each look is a request of its own",
    "doctor/findings.py look_at_all": "each look is a request of its own",
    "doctor/host.py look_at_java": "asks Java for its version",
    "stack/artifacts.py _run_watched": "fetches servers",
    "stack/class_recording.py run_build": "records classes of Spark by a build of nothing",
    "stack/lifecycle.py Stack.status": "looks at servers",
    "stack/log_files.py start_pump": "keeps the log of a server",
    "stack/process.py ManagedProcess._spawn": "servers, which work for all",
    "stack/spec.py run_once": "prepares a server",
    "stack/together.py start_all": "starts servers",
    "stack/together.py stop_all": "stops servers",
    # programs of others, which say nothing of ours
    "agent/cluster_drivers.py _run": "the client of a cluster manager",
    "events/formats/protobuf_sources.py _descriptors": "compiles a schema",
    "stored/bodies/orc/stripes.py OrcStripes._start": "decodes a file; its reader says what fails",
}


def starters(text: str) -> Iterator[tuple[str, int]]:
    """Yield what starts a thread or a process without its maker's ids: the function around it, its line."""
    yield from _starters(ast.parse(text), ())


def _starters(node: ast.AST, within: tuple[str, ...]) -> Iterator[tuple[str, int]]:
    for child in ast.iter_child_nodes(node):
        named = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        inside = (*within, child.name) if named else within  # type: ignore[attr-defined]
        if isinstance(child, ast.Call) and _starts(child):
            yield ".".join(within), child.lineno
        yield from _starters(child, inside)


def _starts(call: ast.Call) -> bool:
    module, _, name = ast.unparse(call.func).rpartition(".")
    if name == "run_in_executor":  # the loop's own pool takes no context along, as `asyncio.to_thread` does
        return ast.unparse(call.args[0]) == "None"
    if name == "Thread":
        target = next((ast.unparse(each.value) for each in call.keywords if each.arg == "target"), "")
        return not target.startswith("carried(")
    return name in ALONE or name in OF_MODULES.get(module, ())


def test_every_thread_and_process_takes_the_ids_of_its_maker_along_or_works_for_no_request() -> None:
    product = PLUGINS / "rtolap"
    files = {str(file.relative_to(product)): file for file in product.rglob("*.py")}
    files |= {
        str(file.relative_to(ROOT)): file
        for folder in ("spark_jobs", "dags")
        for file in (ROOT / folder).rglob("*.py")
    }
    found = {f"{name} {where}" for name, file in files.items() for where, _ in starters(file.read_text())}
    assert not HANDED_OVER.keys() & NO_REQUEST.keys()
    assert found == HANDED_OVER.keys() | NO_REQUEST.keys()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("pool = ThreadPoolExecutor(4)", [("", 1)]),
        ("class A:\n    def f(self):\n        threading.Thread(target=run)", [("A.f", 3)]),
        ("def f():\n    return [subprocess.run(each) for each in given]", [("f", 2)]),
        ("async def f():\n    await loop.run_in_executor(None, g)", [("f", 2)]),
        ("x = multiprocessing.Process(target=run)", [("", 1)]),
        ("Thread(target=carried(run))", []),
        ("CarryingPool(4)", []),
        ("loop.run_in_executor(pool, g)", []),
        ("runner.run(4)", []),
    ],
)
def test_what_starts_something_is_noticed(text: str, found: list[tuple[str, int]]) -> None:
    assert list(starters(text)) == found


def plain_tasks(text: str) -> list[int]:
    """Lines that have tasks of Spark call a function of ours which does not take ids along."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in OF_SPARK
        and node.args
        and ast.unparse(node.func.value) not in ("pool", "self._pool")
        and not ast.unparse(node.args[0]).startswith("InTask(")
    ]


def test_tasks_of_spark_take_the_ids_of_their_job_along() -> None:
    rooms = [PLUGINS / "rtolap" / "cubes" / "build", ROOT / "spark_jobs"]
    files = [file for room in rooms for file in sorted(room.rglob("*.py"))]
    assert {file.name: lines for file in files if (lines := plain_tasks(file.read_text()))} == {}
    assert sum("InTask(" in file.read_text() for file in files) >= 3
    assert plain_tasks("context.parallelize(files).map(look)") == [1]
    assert plain_tasks("rows.mapInArrow(InTask(f), columns)") == []


def test_jobs_of_spark_take_over_what_they_were_started_for() -> None:
    jobs = sorted((ROOT / "spark_jobs").glob("*.py"))
    assert jobs
    assert [job.name for job in jobs if "with job_of_parent():" not in Path(job).read_text()] == []
