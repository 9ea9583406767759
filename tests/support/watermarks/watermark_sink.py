"""A sink of an application as a process: JSON lines in, records with watermarks out; a line with the id says
that a record is in the log.

 python -m tests.support.watermarks.watermark_sink BOOTSTRAP TOPIC NAME APP LEVEL URLS TOKEN [--silent]

A line is {"id", "at" (event time in ms), "partition"}. `--silent`: no control records. At the end of its
input it states its own end.
"""

from __future__ import annotations

import json
import sys
import threading
import time

from rtolap.base.errors import RtolapError
from rtolap.kafka.interfaces import OutRecord
from rtolap.kafka.producer import KafkaAdmin, KafkaProducer
from rtolap.watermark.records.producer import EVERY_S, WatermarkedProducer
from rtolap.watermark_client.client import WatermarkClient


def main() -> None:
    bootstrap, topic, name, application, level, urls, token, *options = sys.argv[1:]
    silent = "--silent" in options
    client = WatermarkClient(urls.split(","), token, application, every_s=0.2)
    generation = time.time_ns() // 1_000_000
    out = WatermarkedProducer(
        KafkaProducer(bootstrap, client_id=name),
        KafkaAdmin(bootstrap),
        topic,
        name=name,
        generation=generation,
        watermark_ms=client.global_watermark,
        every_s=None if silent else EVERY_S,
    )
    done, one_line = threading.Event(), threading.Lock()

    def delivered(record: OutRecord, error: RtolapError | None) -> None:
        if error is not None:
            raise error
        assert record.value is not None
        with one_line:  # of two threads that hear of records
            print(json.loads(record.value)["id"], flush=True)

    def acknowledge() -> None:
        while not done.wait(0.01):
            out.poll()
            oldest_ms = out.oldest_unacknowledged_ms()
            client.set_oldest_work(level, name, 0, oldest_ms, generation=generation)

    polling = threading.Thread(target=acknowledge)
    polling.start()
    for line in sys.stdin:
        event = json.loads(line)
        record = OutRecord(line.encode(), partition=event["partition"])
        out.produce(topic, [record], delivered=delivered, event_ms=[event["at"]])
    done.set()
    polling.join()
    if silent:
        out.flush(20)
    else:
        out.close()
    client.leave(level, name, generation=generation)
    client.close()


if __name__ == "__main__":
    main()
