"""Settings for all tests. The Airflow variables must stand before anything imports airflow."""

from __future__ import annotations

import functools
import gc
import inspect
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import httpx
import pytest
import typer.main
import typer.testing
from hypothesis import HealthCheck, settings
from rtolap.stack.inherited import inherited

from tests.support.in_memory import IN_MEMORY
from tests.support.runs.scheduling import ORDER, ByServers, place_of
from tests.support.seeds import so_many
from tests.support.waiting import patience_s

pytest_plugins = [
    "tests.support.runs.busy_loops",
    "tests.support.runs.failures",
    "tests.support.runs.second_tries",
    "tests.support.runs.time_budget",
]

_PROJECT = Path(__file__).resolve().parents[1]
_TESTS = _PROJECT / "tests"

# What typer makes of an application takes longer than most commands: once per process, as where they are run.
vars(typer.testing)["_get_command"] = functools.cache(typer.main.get_command)

# A draw is the same in each run and fails for no slow machine; `make soak` draws others, and more of them.
settings.register_profile(
    "rtolap",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=so_many(1) == 1,
    max_examples=so_many(100),
)
settings.load_profile("rtolap")

# A request of a test that names no time has httpx's 5 s: on a slow machine, a busy service needs longer.
_request_time = inspect.signature(httpx.get).parameters["timeout"].default
for _part in ("connect", "read", "write", "pool"):
    setattr(_request_time, _part, patience_s(5.0))

# A developer's shell may set up another Spark and Airflow, and name a proxy.
_shell = inherited()
os.environ.clear()
os.environ.update(_shell)

# Several processes are given one; a console that is made under it keeps that width, whatever a test asks for.
os.environ.pop("COLUMNS", None)

# Many containers set it. Each process that is started would then compile all that it imports.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

os.environ["AIRFLOW_HOME"] = tempfile.mkdtemp(prefix="rtolap-airflow-")
os.environ["AIRFLOW__CORE__UNIT_TEST_MODE"] = "True"
os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "False"
os.environ["AIRFLOW__CORE__DAGS_FOLDER"] = str(_PROJECT / "dags")
os.environ["AIRFLOW__CORE__PLUGINS_FOLDER"] = str(_PROJECT / "plugins")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests in `integration/` and `e2e/` carry their marker even when a file forgets it.

    `-m "not integration and not e2e"` therefore always is the quick part.
    """
    for item in items:
        parts = item.path.relative_to(config.rootpath).parts
        for marker in ("integration", "e2e"):
            if marker in parts:
                item.add_marker(getattr(pytest.mark, marker))
    items.sort(key=lambda item: ORDER.index(place_of(item.nodeid)))


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """What thousands of tests and modules are made of stays to the end: no collection need look at it again.

    Without it, an eighth of the time of the tests without servers is garbage collection's.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Folders that a test without servers, its fixtures or their helpers make with `tempfile` lie in memory.

    On a disk, a simulated cluster spends a quarter of its time on waiting for files that are synced.
    """
    before = tempfile.tempdir
    tempfile.tempdir = before if "integration" in item.path.parts else IN_MEMORY or before
    try:
        return (yield)
    finally:
        tempfile.tempdir = before


class _Folders:
    """pytest's factory of folders that several tests share. For tests without servers it makes them where
    `tempfile` does, in memory, until all tests of the process have ended.
    """

    def __init__(self, others: pytest.TempPathFactory, root: Path) -> None:
        self._others, self._root = others, root
        self.getbasetemp = others.getbasetemp

    def mktemp(self, basename: str, numbered: bool = True) -> Path:
        if IN_MEMORY is None or tempfile.tempdir != IN_MEMORY:
            return self._others.mktemp(basename, numbered)
        return Path(tempfile.mkdtemp(prefix=f"{basename}-", dir=self._root))


@pytest.fixture(scope="session")
def tmp_path_factory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Folders]:
    with tempfile.TemporaryDirectory(
        prefix="rtolap-tests-", dir=IN_MEMORY, ignore_cleanup_errors=True
    ) as folder:
        yield _Folders(tmp_path_factory, Path(folder))


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a test without servers lies in memory, and is gone with the test."""
    if IN_MEMORY is None or "integration" in request.path.parts:
        yield tmp_path_factory.mktemp(re.sub(r"\W", "_", request.node.name)[:30])
        return
    with tempfile.TemporaryDirectory(
        prefix="rtolap-test-", dir=IN_MEMORY, ignore_cleanup_errors=True
    ) as folder:
        yield Path(folder)


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> ByServers:
    return ByServers(config, log)


_fetching = pytest.StashKey[subprocess.Popen[bytes]]()


def pytest_sessionstart(session: pytest.Session) -> None:
    """Where all tests are run by several processes, jars for later ones are fetched beside the first ones."""
    config = session.config
    all_of_them = {Path(argument).resolve() for argument in config.args} & {_TESTS, _TESTS / "integration"}
    servers_too = "not integration" not in config.getoption("markexpr")
    if all_of_them and servers_too and config.getoption("numprocesses", None):
        config.stash[_fetching] = subprocess.Popen(
            ["nice", sys.executable, "-m", "tests.support.runs.fetched_ahead"],
            cwd=_PROJECT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,  # with what it has started, it ends no later than the tests
        )


@pytest.hookimpl(trylast=True)  # after pytest has looked for what was left open: modules leave nothing
def pytest_unconfigure(config: pytest.Config) -> None:
    if fetching := config.stash.get(_fetching, None):
        if fetching.poll() is None:
            os.killpg(fetching.pid, signal.SIGTERM)
        fetching.wait()
    gc.unfreeze()  # some modules written in C complain of what is never collected
    shutil.rmtree(os.environ["AIRFLOW_HOME"], ignore_errors=True)
