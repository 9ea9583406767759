"""What `kafka_default` and `spark_default` say on Airflow's page is what happens."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.airflow.conftest import Say

pytestmark = pytest.mark.integration

BUILD, CHECK = "rtolap_segment_build", "it_kafka"


def test_kafka_is_reached_as_the_connection_says(airflow: Any, stream: Any, kafka: str, say: Say) -> None:
    stream.send(1, 2)
    say("kafka_default", conn_type="kafka", extra={"bootstrap.servers": "127.0.0.1:9"})
    run_id = airflow.trigger(CHECK, cube=stream.name)
    airflow.until_run(CHECK, run_id, "failed")
    silent = "kafka_default: Kafka cluster kafka_default at 127.0.0.1:9 does not answer"
    airflow.until_logged(airflow.task(CHECK, run_id, "check"), silent)

    secret = "a secret of this connection"
    say("kafka_default", conn_type="kafka", extra={"bootstrap.servers": kafka, "ssl.key.password": secret})
    airflow.clear(CHECK, run_id, "check", "read")
    airflow.until_run(CHECK, run_id)
    assert airflow.result(airflow.task(CHECK, run_id, "check")) == {"default": [stream.name]}
    assert set(airflow.result(airflow.task(CHECK, run_id, "read"))["lag"].values()) == {0}
    for task in airflow.tasks(CHECK, run_id):
        assert secret not in airflow.log(task)


def test_a_build_is_submitted_as_the_connection_says(airflow: Any, stream: Any, say: Say) -> None:
    """What the agent does not allow ends the attempt, and is named; the retry follows the mended page."""
    stream.send(1, 2)

    def is_now(state: str) -> Any:
        info = stream.segments().get(1)
        return info if info is not None and info.state == state else None

    airflow.until("REMOTE_PERSISTED segment", lambda: is_now("REMOTE_PERSISTED"))
    forbidden = {"spark.jars": "https://elsewhere.example.org/code.jar"}
    say("spark_default", conn_type="spark", host="local[1]", extra={"conf": forbidden})
    run_id = airflow.trigger(BUILD)

    def refused() -> Any:
        builds = airflow.tasks(BUILD, run_id, "build")
        logs = [airflow.log(task) for task in builds if task["try_number"]]
        return next((log for log in logs if "--conf of spark-submit refused" in log), None)

    assert "found 'spark.jars'" in airflow.until("the refusal in the task's log", refused)
    assert "code.jar" not in refused()

    def submitted() -> Any:
        running = [one for one in airflow.agent.processes() if one.key == f"build.{stream.name}"]
        return running[0] if running else None

    allowed = {"queue": "night", "conf": {"spark.sql.shuffle.partitions": "3"}}
    say("spark_default", conn_type="spark", host="local[1]", extra=allowed)
    argv = " ".join(airflow.until("the build's process", submitted).argv)  # its result is read and forgotten
    airflow.until("it is built", lambda: is_now("READY"), 300.0)
    airflow.until_run(BUILD, run_id)
    assert argv.startswith(
        "spark-submit --master local[1] --conf spark.sql.shuffle.partitions=3 "
        f"--name build.{stream.name} --queue night build_segment.py"
    )
    assert stream.answer() == stream.recount()
