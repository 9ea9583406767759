"""The query process and its workers: how all of them end, however they are told to."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from rtolap.base.clock import SystemClock
from rtolap.query.query_log.folder import LogFolder
from rtolap.query.query_log.log import QueryLog

from tests.support.query.workers import is_alive, wait_until

PROCESS = """
import os, sys, threading
from pathlib import Path
from rtolap.base.hidden_pandas import hide_pandas
hide_pandas()  # as the command does
from rtolap.base.settings import Settings
from tests.support.twins.metadata import MemoryEnsemble, MemoryStore
from rtolap.query.run import QueryProcess
folder = Path(sys.argv[1])
(folder / "users").write_text("")
(folder / "token").write_text("secret")
settings = Settings(
    object_store=(folder / "store").as_uri(),
    users_file=folder / "users",
    token_file=folder / "token",
    data_dir=folder,
    include_dir=folder,
    query_http_port=0,
    query_mysql_port=0,
)
process = QueryProcess(settings, MemoryStore(MemoryEnsemble()))

def ask() -> None:
    assert process.service.execute("select 1 as x").table().num_rows == 1
    pool = process.service._engine
    pids = [pool.fork_server_pid, *sum(pool.workers().values(), [])]
    wait_for_server()
    print(*pids, flush=True)

def wait_for_server() -> None:
    while not process._http.started:
        threading.Event().wait(0.02)

threading.Thread(target=ask, daemon=True).start()
process.run()
print("ended", flush=True)
"""


@pytest.mark.parametrize("how", ["Ctrl-C", "SIGKILL"])
def test_a_query_process_takes_its_workers_with_it(how: str, tmp_path: Path) -> None:
    number = signal.SIGINT if how == "Ctrl-C" else signal.SIGKILL
    with subprocess.Popen(
        [sys.executable, "-c", PROCESS, str(tmp_path)],
        stdout=subprocess.PIPE,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        text=True,
        process_group=0,
    ) as process:
        assert process.stdout is not None
        pids = [int(word) for word in process.stdout.readline().split()]
        assert len(pids) >= 2
        assert all(map(is_alive, pids))
        os.killpg(process.pid, number)
        rest = process.stdout.read()  # to its end: nobody holds it open
    assert rest == ("" if how == "SIGKILL" else "ended\n")
    assert process.returncode == (-signal.SIGKILL if how == "SIGKILL" else 0)
    wait_until(lambda: not any(map(is_alive, pids)))


ASKED = """
def ask() -> None:
    process.service.execute("select 42 as asked_before_the_kill").table()
    print("asked", flush=True)
"""


def test_statements_of_a_killed_process_are_in_the_log_of_the_next(tmp_path: Path) -> None:
    begin, rest = PROCESS.split("def ask() -> None:")
    script = begin + ASKED + "def wait_for_server" + rest.split("def wait_for_server", 1)[1]
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)],
        stdout=subprocess.PIPE,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        text=True,
        process_group=0,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "asked\n"
        folder = LogFolder(tmp_path / "query_log", SystemClock(), bytes_max=1 << 20, keep_ms=86_400_000)
        wait_until(lambda: any(batch.num_rows for batch in folder.batches()))
        os.killpg(process.pid, signal.SIGKILL)
    with closing(QueryLog(folder)) as log:
        assert "select 42 as asked_before_the_kill" in log.table("")["STATEMENT"].to_pylist()
