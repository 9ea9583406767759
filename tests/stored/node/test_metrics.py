"""The metrics of a storage node, as the process that a stack starts: they move with what it does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from rtolap.base.errors import RtolapError
from rtolap.protocols.storage import messages as wire
from rtolap.protocols.storage.client import StorageClient
from rtolap.stack.ports import free_port

from tests.support.scrape import scrape
from tests.support.stored.storage_rows import SCHEMA, rows, tablet
from tests.support.waiting import result_of

DEADLINE_S = 60.0
TOKEN = "secret"


@pytest.fixture
def ports(tmp_path: Path) -> Iterator[tuple[int, int]]:
    """Of the Flight endpoint and of the metrics, of a node that runs."""
    (tmp_path / "token").write_text(TOKEN)
    flight, metrics = free_port(), free_port()
    environment = {
        **os.environ,
        "RTOLAP_TOKEN_FILE": str(tmp_path / "token"),
        "RTOLAP_DATA_DIR": str(tmp_path / "data"),
        "RTOLAP_STREAM_LOAD_ENDPOINTS": "http://127.0.0.1:1",  # nobody hears its heartbeats
    }
    arguments = ("--name", "n1", "--port", str(flight), "--metrics-port", str(metrics))
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "rtolap.cli.main", "storage", "serve", *arguments],
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    with StorageClient(f"127.0.0.1:{flight}", TOKEN) as client:

        def ask() -> None:
            assert process.poll() is None, (tmp_path / "log").read_text()
            client.status()

        result_of(ask, RtolapError, timeout_s=DEADLINE_S, poll_s=0.05)
    yield flight, metrics
    process.send_signal(signal.SIGTERM)
    assert process.wait(DEADLINE_S) == 0


def test_counters_move_with_what_a_node_does(ports: tuple[int, int]) -> None:
    flight, metrics = ports
    url = f"http://127.0.0.1:{metrics}"
    assert httpx.get(f"{url}/metrics").status_code == 401
    before = scrape(url, TOKEN)
    assert before("rtolap_storage_tablets") == 0
    with StorageClient(f"127.0.0.1:{flight}", TOKEN) as client:
        client.create(wire.CreateTablets((tablet(),), SCHEMA))
        stream = client.put(wire.PutHead(7, SCHEMA), rows().schema)
        stream.write(tablet(), rows(1, 2, 3))
        stream.finish(wire.PutEnd((wire.TabletRows(tablet(), 3),)))
        loaded = scrape(url, TOKEN)
        client.prepare(wire.Prepare(7, (tablet(),)))
        client.publish(wire.Publish(7, ((tablet(), 1),)))
    after = scrape(url, TOKEN)
    assert (loaded("rtolap_storage_loaded_rows_total"), loaded("rtolap_storage_rows")) == (3, 0)
    assert (after("rtolap_storage_tablets"), after("rtolap_storage_rows")) == (1, 3)
    assert after("rtolap_storage_file_bytes") > 0
    assert after("rtolap_storage_disk_free_bytes") > 0
    calls = "rtolap_storage_flight_call_seconds_count"
    assert after(calls, method="do_exchange", outcome="ok") == 1
    assert after(calls, method="do_action", outcome="ok") >= before(calls, method="do_action") + 3
