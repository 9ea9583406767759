"""People are told by mail of a task that failed and of a question, by a real Airflow."""

from __future__ import annotations

import email
import json
import re
import socketserver
import threading
import uuid
from collections.abc import Callable, Iterator
from email.message import Message
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.cimpl import NewTopic

from tests.support.kafka_topics import create_topic

LETTERS_TOPIC, LETTERS_CONNECTION = "it-letters.hits.rejects", "kafka_it_letters"  # as in dags/letters.py

pytestmark = pytest.mark.integration

NOTIFIERS = [
    {
        "class": "airflow.providers.smtp.notifications.smtp.SmtpNotifier",
        "arguments": {
            "from_email": "airflow@example.com",
            "to": "ops@example.com",
            "subject": "{subject}",
            "html_content": "<pre>{html}</pre>",
        },
    }
]


class Mailbox(socketserver.ThreadingTCPServer):
    """A mail server on loopback that keeps what it is sent."""

    daemon_threads = True

    def __init__(self) -> None:
        self.mails: list[Message] = []
        super().__init__(("127.0.0.1", 0), _Session)

    def find(self, subject: str) -> Message | None:
        return next((mail for mail in self.mails if subject in str(mail["Subject"])), None)


class _Session(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        self.say("220 ready")
        while line := self.rfile.readline():
            word = line.split()[0].upper() if line.split() else b""
            if word == b"DATA":
                self.say("354 go on")
                text = b"".join(iter(self.rfile.readline, b".\r\n"))
                assert isinstance(self.server, Mailbox)
                self.server.mails.append(email.message_from_bytes(text))
            self.say("221 bye" if word == b"QUIT" else "250 ok")
            if word == b"QUIT":
                return

    def say(self, line: str) -> None:
        self.wfile.write(f"{line}\r\n".encode())


@pytest.fixture
def mailbox(airflow: Any) -> Iterator[Mailbox]:
    """The server that Airflow's connection names, and the Variable that has it used."""
    with Mailbox() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        connection = {
            "connection_id": "smtp_default",
            "conn_type": "smtp",
            "host": "127.0.0.1",
            "port": server.server_address[1],
            "extra": json.dumps({"disable_tls": True, "disable_ssl": True}),
        }
        variable = {"key": "rtolap_notifiers", "value": json.dumps(NOTIFIERS)}
        airflow.api.post("/api/v2/connections", json=connection).raise_for_status()
        airflow.api.post("/api/v2/variables", json=variable).raise_for_status()
        yield server
        airflow.api.delete("/api/v2/variables/rtolap_notifiers").raise_for_status()
        airflow.api.delete("/api/v2/connections/smtp_default").raise_for_status()
        server.shutdown()


@pytest.fixture
def letters(airflow: Any, kafka: str) -> Iterator[Callable[[int], None]]:
    """Refuses a record at an offset: the dead letter that a loader writes. The topic is made by the first."""
    settings = {
        "bootstrap.servers": kafka,
        "group.id": f"it-letters-{uuid.uuid4().hex[:6]}",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "topic.metadata.refresh.interval.ms": 1000,
    }
    connection = {"connection_id": LETTERS_CONNECTION, "conn_type": "kafka", "extra": json.dumps(settings)}
    airflow.api.post("/api/v2/connections", json=connection).raise_for_status()
    producer = Producer({"bootstrap.servers": kafka})
    made: list[int] = []

    def refuse(offset: int) -> None:
        if not made:
            create_topic(kafka, NewTopic(LETTERS_TOPIC, num_partitions=1, replication_factor=1))
        made.append(offset)
        headers = {"topic": "hits", "partition": "0", "offset": str(offset), "reason": "not_json"}
        value = f"secret-{offset}".encode()
        producer.produce(LETTERS_TOPIC, value, headers={**headers, "detail": "no JSON <b>"})
        assert producer.flush(30) == 0

    yield refuse
    airflow.pause("it_letters")
    airflow.api.delete(f"/api/v2/connections/{LETTERS_CONNECTION}").raise_for_status()


def test_a_dead_letter_starts_a_dag_of_notice_and_each_letter_is_told_once(
    airflow: Any, mailbox: Mailbox, letters: Callable[[int], None]
) -> None:
    """The provider's trigger watches a topic that is not there yet; what is told is read from the topic."""
    airflow.unpause("it_letters")

    def told() -> list[str]:
        texts = [body(mail) for mail in mailbox.mails if "set apart" in str(mail["Subject"])]
        return [place for text in texts for place in re.findall(r"hits partition 0 offset \d+", text)]

    for offset in (3, 4):
        letters(offset)
        place = f"hits partition 0 offset {offset}"
        airflow.until(f"mail of {place}", partial(lambda wanted: wanted in told() or None, place))
    assert sorted(told()) == ["hits partition 0 offset 3", "hits partition 0 offset 4"]
    assert {run["run_type"] for run in airflow.runs("it_letters")} == {"asset_triggered"}
    everything = "".join(body(mail) for mail in mailbox.mails)
    assert "secret" not in everything
    assert "<b>" not in everything


def body(mail: Message) -> str:
    parts = [part.get_payload(decode=True) for part in mail.walk() if not part.is_multipart()]
    return b"".join(part for part in parts if isinstance(part, bytes)).decode()


def test_a_failed_task_and_a_question_are_told_by_mail(airflow: Any, stream: Any, mailbox: Mailbox) -> None:
    unknown = "no_such_{{ 7 * 7 }}<b>"
    airflow.unpause("rtolap_purge")
    run_id = airflow.trigger("rtolap_purge", cube=unknown, before=stream.start(1))
    failed = airflow.until("mail of the failure", lambda: mailbox.find("failed"))
    assert failed["To"] == "ops@example.com"
    assert "rtolap_purge" in failed["Subject"]
    assert run_id in body(failed)
    assert "49" not in body(failed).replace(run_id, "")
    assert "<b>" not in body(failed)

    airflow.unpause("it_asks")
    asked_run = airflow.trigger("it_asks", what=unknown)
    asked = airflow.until("mail of the question", lambda: mailbox.find("May it go on?"))
    assert asked["Subject"] == "rtolap asks: May it go on?"
    assert asked_run in body(asked)
    assert "no_such_{{ 7 * 7 }}&lt;b&gt;" in body(asked)
