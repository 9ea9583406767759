"""Time from a record's create time to the arrival of the first SQL answer that holds it, of every record.

    python -m benchmarks.freshness [--rate 100000] [--seconds 20] [--preload 0] [--settle-s 5] [--askers 1]
                                   [--rest-ms 0] [--pages 400] [--others 25] [--answers flight] [--bare]
                                   [--stages] [--profile] [--duckdb]

Real ZooKeeper, Kafka, coordinator, receiver and query service on loopback. One process sends 200-byte JSON to
4 partitions in small even slices and notes when each offset was made: just before it is handed to the client,
so the client's own batching counts. One asker sends a group-by over HTTP, again as soon as it has
the answer, and checks its count. An answer names the positions that it holds; an event is visible when the
first answer with a position beyond its offset has arrived. All events but those of the warm-up are measured.

The stream is as wide as what is held: both draw from 80 000 combinations of the dimensions' values. Before
anything is measured, five other group-bys are asked, each `--others` times in all with conditions of its own.

`--preload`: so many events are held already when it begins, spread over 24 hours. `--pages 1000000`: one of
the four dimensions has so many values, in what is held and in the stream.
`--settle-s 0`: measuring begins as soon as what is held was read, while the receiver still writes fragments,
merges them and uploads the hours that are complete; how many files of each were written meanwhile is told.
`--askers`: all but the first ask five other group-bys in turn. `--rest-ms`: an asker rests so long between
two statements; with less to answer, what the events alone cost a receiver is seen. Processor time is that of
the seconds in which the measured events were made. `--answers`: the receiver's answers come over a guarded
HTTP port, by one of the clients of `benchmarks.answer_transport`, instead of Flight.

`--bare`: a bare consumer of one of the four partitions runs beside all that, and notes when it has each
record: the least that can be seen of that partition in that run, on the machine as it is. `--stages`: says of
what the latency is made, by the receiver's steps and the statements. `--profile`: says where the receiver
spends its processor time; the sampler takes some itself. All of these go together.

`--duckdb`: afterwards, with the services gone, such a stream goes to a loader of one's own into a table of
DuckDB in memory that holds the same events (`duckdb_loader`): a peer in the same run.

`ratio` is p50 over the round trip of the same query on the same cube when it is idle. An asker that never
rests sees 1.5 at best: an event waits half a round for the question that can see it, and a whole round for
the answer. Everything shares the machine's cores, the producer, Kafka and the asker too: on a busy or small
machine the figures are the machine's, and the achieved rate is part of the result.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from benchmarks.freshness.figures import report
from benchmarks.freshness.run import FLIGHT, OTHERS_ASKED, SETTLE_S, Settings, measure
from benchmarks.freshness.stream import PAGES, PARTITIONS
from benchmarks.servers import kafka, zookeeper


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rate", type=int, default=100_000, help="events per second")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--preload", type=int, default=0, help="events that are held before")
    parser.add_argument("--settle-s", type=float, default=SETTLE_S, help="between reading that and measuring")
    parser.add_argument("--askers", type=int, default=1, help="statements at the same time")
    parser.add_argument("--rest-ms", type=float, default=0.0, help="of an asker between two statements")
    parser.add_argument("--pages", type=int, default=PAGES, help="values of one dimension")
    parser.add_argument("--others", type=int, default=OTHERS_ASKED, help="other statements asked before")
    parser.add_argument("--profile", action="store_true", help="say where the receiver spends its time")
    parser.add_argument("--stages", action="store_true", help="say of what the latency is made")
    parser.add_argument("--bare", action="store_true", help="run a bare consumer of one partition beside")
    parser.add_argument("--duckdb", action="store_true", help="send the stream to a loader into DuckDB, too")
    parser.add_argument(
        "--answers",
        choices=(FLIGHT, "httpx", "http.client"),
        default=FLIGHT,
        help="how the query service gets the receiver's answers",
    )
    arguments = parser.parse_args()
    settings = Settings(
        rate=arguments.rate,
        seconds=arguments.seconds,
        held=arguments.preload // PARTITIONS * PARTITIONS,
        settle_s=arguments.settle_s,
        askers=arguments.askers,
        rest_s=arguments.rest_ms / 1000,
        pages=arguments.pages,
        others_asked=arguments.others,
        answers=arguments.answers,
        profiled=arguments.profile,
        bare=arguments.bare,
        staged=arguments.stages,
        peer=arguments.duckdb,
    )
    with kafka() as bootstrap, zookeeper() as ensemble, tempfile.TemporaryDirectory() as folder:
        figures = measure(bootstrap, ensemble, Path(folder), settings)
    report(figures, arguments.rate)
    if arguments.json:
        print(
            json.dumps(
                {"benchmark": "freshness", **{name: round(figure, 2) for name, figure in figures.items()}}
            )
        )


if __name__ == "__main__":
    main()
