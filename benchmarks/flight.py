"""The cost of the guard before a Flight server: small calls and large streams, with it and without.

    python -m benchmarks.flight [--rounds 3] [--megabytes 500] [--busy]

The same server twice in one process, bare and guarded, in turns; its client is a process of its own.
`--busy`: a thread of the server's process computes without end, the worst that its own work can do to it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyarrow import flight
from rtolap.base.metrics import Metrics
from rtolap.base.mutual_proof import ServerSessions
from rtolap.cli.serving import switch_often
from rtolap.servers.flight_server import CallFactory, GuardedFlightServer

TOKEN = "bench"
CALLS = 1000
BATCH = pa.record_batch({"n": pa.array(range(131_072), pa.int64())})  # 1 MiB


class _Answers:
    def do_get(self, context: Any, ticket: Any) -> Any:
        batches = [BATCH] * int(ticket.ticket)
        return flight.RecordBatchStream(pa.Table.from_batches(batches, BATCH.schema))

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        for _ in reader:
            pass

    def do_action(self, context: Any, action: Any) -> Iterator[Any]:
        return iter([flight.Result(b"{}")])


class _Bare(_Answers, flight.FlightServerBase):  # type: ignore[misc]  # pyarrow has no types
    def __init__(self) -> None:
        calls = CallFactory(TOKEN, ServerSessions(TOKEN, "bare"), Metrics("receiver"))
        super().__init__("grpc://127.0.0.1:0", middleware={"call": calls})


class _Guarded(_Answers, GuardedFlightServer):
    def __init__(self) -> None:
        super().__init__(host="127.0.0.1", port=0, token=TOKEN, metrics=Metrics("receiver"))


def ask(port: int, megabytes: int) -> dict[str, float]:
    """Ask in the client's place."""
    options = flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {TOKEN}".encode())])
    with flight.FlightClient(f"grpc+tcp://127.0.0.1:{port}") as client:
        took_s = []
        for _ in range(CALLS):
            began_s = time.perf_counter()
            list(client.do_action(flight.Action("any", b""), options))
            took_s.append(time.perf_counter() - began_s)
        client.do_get(flight.Ticket(b"20"), options).read_all()
        began_s = time.perf_counter()
        for _ in client.do_get(flight.Ticket(str(megabytes).encode()), options):
            pass
        get_s = time.perf_counter() - began_s
        began_s = time.perf_counter()
        writer, _reader = client.do_put(flight.FlightDescriptor.for_path("rows"), BATCH.schema, options)
        for _ in range(megabytes):
            writer.write_batch(BATCH)
        writer.close()
        put_s = time.perf_counter() - began_s
    return {
        "call_ms": statistics.median(took_s) * 1000,
        "get_mib_per_s": megabytes / get_s,
        "put_mib_per_s": megabytes / put_s,
    }


def measure(kind: type[_Bare] | type[_Guarded], megabytes: int) -> dict[str, float]:
    with kind() as server:
        command = [
            sys.executable,
            "-m",
            __spec__.name,
            "--ask",
            str(server.port),
            "--megabytes",
            str(megabytes),
        ]
        run = subprocess.run(command, capture_output=True, text=True, check=True)
    figures: dict[str, float] = json.loads(run.stdout)
    return figures


def compute_without_end() -> None:
    number = 0
    while True:
        number += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=500)
    parser.add_argument("--busy", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--ask", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.ask is not None:
        print(json.dumps(ask(arguments.ask, arguments.megabytes)))
        return
    switch_often()
    if arguments.busy:
        threading.Thread(target=compute_without_end, daemon=True).start()
    medians: dict[str, dict[str, float]] = {}
    kinds: dict[str, type[_Bare] | type[_Guarded]] = {"bare": _Bare, "guarded": _Guarded}
    runs = [
        (name, measure(kinds[name], arguments.megabytes)) for _ in range(arguments.rounds) for name in kinds
    ]
    for name in kinds:
        mine = [figures for each, figures in runs if each == name]
        medians[name] = {figure: statistics.median(run[figure] for run in mine) for figure in mine[0]}
    for figure in medians["bare"]:
        bare, guarded = medians["bare"][figure], medians["guarded"][figure]
        print(f"{figure:15} bare {bare:8.2f}  guarded {guarded:8.2f}  ratio {guarded / bare:.2f}")
    if arguments.json:
        print(json.dumps(medians))


if __name__ == "__main__":
    main()
