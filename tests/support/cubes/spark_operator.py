"""A Spark job as source and operator of an application, as a process of its own.

    python -m tests.support.cubes.spark_operator BOOTSTRAP IN OUT APPLICATION URLS TOKEN FOLDER NAME

Reads the topic IN batch by batch from the offset in FOLDER/committed on. Spark's tasks double each number
and write it to OUT; each of them first waits for the file FOLDER/NAME.go. A batch is work of the unit `job`
of the level `enrich` from before the source `web` is said to have been read until the output is in the log.
Ends when there is a file FOLDER/NAME.end and everything is read.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as f
from rtolap.base.errors import Unavailable
from rtolap.base.files import write_atomic
from rtolap.kafka.consumer import KafkaConsumer
from rtolap.kafka.interfaces import OutRecord
from rtolap.kafka.producer import KafkaProducer
from rtolap.watermark_client.client import WatermarkClient, unfinished

from tests.support.waiting import patience_s

HOST = "loader"
GO_TIMEOUT_S = 120.0


def spark_session() -> SparkSession:
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    bound = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
    return bound.config("spark.sql.shuffle.partitions", "2").getOrCreate()


def write(rows: Iterable[Row], *, bootstrap: str, topic: str, go: Path) -> None:
    """Write rows, as a task that returns when they are in the log."""
    deadline_s = time.monotonic() + patience_s(GO_TIMEOUT_S)
    while not go.exists():
        if time.monotonic() > deadline_s:
            raise Unavailable(f"{go} is not there", action="nobody lets the task go on")
        time.sleep(0.02)
    producer = KafkaProducer(bootstrap)
    producer.produce(topic, [OutRecord(json.dumps(row.asDict()).encode(), partition=0) for row in rows])
    producer.flush(30)
    producer.close()


def batches(consumer: KafkaConsumer, end: Path) -> Iterator[tuple[list[dict[str, int]], int]]:
    """Yield events, and the offset behind them. The first batch holds all that the job's predecessor may have
    read, so it may be empty; the others are not."""
    upto, is_first = consumer.log_range(0).end, True
    events: list[dict[str, int]] = []
    while is_first or not end.exists() or consumer.position()[0] < consumer.log_range(0).end:
        batch = consumer.poll(10_000, 0.1)
        events += [json.loads(value) for value in batch.values if value is not None]
        position = consumer.position()[0]
        if position >= upto and (events or is_first):
            yield events, position
            is_first, events = False, []


def main() -> None:
    bootstrap, read_topic, write_topic, application, urls, token, folder, name = sys.argv[1:]
    generation = time.time_ns() // 1_000_000
    go, end, committed = (Path(folder) / file for file in (f"{name}.go", f"{name}.end", "committed"))
    spark = spark_session()
    consumer = KafkaConsumer(bootstrap, read_topic)
    consumer.assign({0: int(committed.read_text()) if committed.exists() else 0})
    task = partial(write, bootstrap=bootstrap, topic=write_topic, go=go)
    with WatermarkClient(urls.split(","), token, application, every_s=0.1) as client:
        for events, position in batches(consumer, end):
            if not events:  # its predecessor had finished everything
                client.set_oldest_work("enrich", "job", generation=generation)
                continue
            times = [event["at"] for event in events]
            with unfinished(
                client, "enrich", "job", oldest_work_ms=min(times), generation=generation, timeout_s=60
            ):
                print("taken over", flush=True)  # the server knows of this owner
                client.report_progress("web", 0, generation, [HOST], [max(times)], partitions=1)
                frame = spark.createDataFrame(events, "id long, at long").repartition(2)
                frame.withColumn("double", f.col("id") * 2).foreachPartition(task)
                write_atomic(committed, str(position).encode())
        client.leave("enrich", "job", generation=generation)
    consumer.close()
    spark.stop()


if __name__ == "__main__":
    main()
