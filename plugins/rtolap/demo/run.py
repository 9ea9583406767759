"""The whole demonstration, from an empty stack to the table of answers.

1. the stack answers                              4. definitions are created, the cube is enabled
2. the topics exist                               5. the replay is produced, in a thread of its own
3. Airflow starts the receivers by their DAG      6. SQL is sent until everything closed is history
   and lets the build DAG work
Nothing bypasses Airflow: this module starts no receiver and no build.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import httpx
import pyarrow as pa

from rtolap.base.addresses import host_port
from rtolap.base.decoding import decode_json
from rtolap.base.errors import Refused, RtolapError, Unavailable
from rtolap.base.settings import Settings
from rtolap.demo.airflow_api import AirflowApi
from rtolap.demo.flights import Replay, ReplayPlan
from rtolap.demo.journal import DemoJournal, compare_refusals
from rtolap.demo.moments import Moment, Situation, situation
from rtolap.demo.produce import Sender
from rtolap.demo.recount import QUERIES, Recount, Rows, normal
from rtolap.demo.screen import Screen
from rtolap.kafka.clusters import KafkaClusters
from rtolap.kafka.dead_letters import read_dead_letters
from rtolap.kafka.producer import KafkaAdmin, KafkaProducer
from rtolap.model.table import DEFAULT_KAFKA_CLUSTER
from rtolap.model.yaml_files import read_definitions
from rtolap.protocols.coordinator.client import CoordinatorClient
from rtolap.protocols.definitions import Takers, create_all
from rtolap.protocols.query.messages import ARROW_STREAM
from rtolap.protocols.receiver.client import ReceiverClient, ReceiverClients
from rtolap.protocols.rest.clients import service_client
from rtolap.protocols.rest.error_responses import error_of

CUBE = "flights_cube"
TOPIC = "flights"
DAGS = ("rtolap_receivers", "rtolap_segment_build")
_RECEIVERS_TIMEOUT_S = 180.0
_ANSWER_TIMEOUT_S = 120.0  # no answer for this time is a failure
_CHECKPOINT_S = 5.0
_ROUND_S = 0.4

T = TypeVar("T")


class DemoPlan(NamedTuple):
    """`rate` is records per second; `timeout_s` bounds the time from the first record to the end."""

    replay: ReplayPlan
    rate: float
    timeout_s: float


class Demo:
    """A run on a stack that answers. `run` returns the journal; it raises when something never happens."""

    def __init__(self, plan: DemoPlan, settings: Settings, airflow: AirflowApi, screen: Screen) -> None:
        self._plan = plan
        self._settings = settings
        self._airflow = airflow
        self._screen = screen
        self._kafka = KafkaClusters.of_host(settings).get(DEFAULT_KAFKA_CLUSTER)
        self._admin = KafkaAdmin(self._kafka)
        self._coordinator = CoordinatorClient(settings.coordinator_urls(), settings.token())
        self._receivers = ReceiverClients(settings.token())
        self._endpoint = SqlClient(settings.query_url(), settings.token())
        self._failure: RtolapError | None = None
        self._checkpoint_s = 0.0

    def run(self, journal: DemoJournal) -> None:
        screen = self._screen
        screen.step("laying out the replay")
        replay = Replay(self._plan.replay)
        screen.progress.total = replay.records
        self._create_topics()
        screen.step("Airflow starts the receivers")
        with self._airflow as airflow:
            for dag_id in DAGS:
                airflow.unpause(dag_id)
        _wait_for("two receivers that are up", _RECEIVERS_TIMEOUT_S, self._receivers_are_up)
        definitions = read_definitions(self._settings.include_dir)
        create_all(Takers(self._coordinator), definitions, enable=True)
        producer = KafkaProducer(self._kafka)
        sender = Sender(producer, self._admin, TOPIC)
        recount = Recount(replay, sender.first)
        sending = threading.Thread(target=self._produce, args=(replay, sender), name="produce", daemon=True)
        sending.start()
        screen.step("replaying flights, asking all the time")
        try:
            self._ask_until_settled(journal, recount, sender, sending)
        finally:
            producer.close()
        screen.step("reading what was refused")
        journal.refusals = compare_refusals(
            recount.malformed(), read_dead_letters(self._kafka, self._dead_letter_topic())
        )

    def close(self) -> None:
        self._endpoint.close()
        self._receivers.close()
        self._coordinator.close()
        self._admin.close()

    def _create_topics(self) -> None:
        """Create the topics. The event topic has to be empty, or the recount would not know what is in it."""
        if not self._admin.create_topic(TOPIC, self._plan.replay.partitions):
            stored_records = sum(self._admin.offsets(TOPIC, "latest").values())
            if stored_records:
                raise Refused(
                    f"topic {TOPIC} holds {stored_records} records already",
                    action="`rtolap demo --fresh` starts over with an empty stack",
                )
        self._admin.create_topic(self._dead_letter_topic(), 1)

    def _dead_letter_topic(self) -> str:
        return read_definitions(self._settings.include_dir).schema(CUBE).table.dead_letter_topic

    def _receivers_are_up(self) -> bool:
        return sum(receiver.health == "HEALTHY" for receiver in self._coordinator.receivers()) >= 2

    def _produce(self, replay: Replay, sender: Sender) -> None:
        try:
            sender.send(replay.batches(), rate=self._plan.rate, progress=self._produced)
            sender.finish()
        except RtolapError as error:
            self._failure = error

    def _produced(self, records: int) -> None:
        self._screen.progress.produced = records

    def _ask_until_settled(
        self, journal: DemoJournal, recount: Recount, sender: Sender, sending: threading.Thread
    ) -> None:
        deadline = time.monotonic() + self._plan.timeout_s
        while True:
            before = self._look(journal)
            ended = not sending.is_alive()
            if self._failure is not None:
                raise self._failure
            settled = ended and before.pending == 0 and self._caught_up(sender)
            moments = {Moment.END} if settled else set()
            journal.observe(moments)
            self._ask_all(journal, recount, before, moments)
            self._screen.tick()
            self._show_fragments(journal)
            if settled:
                return
            if time.monotonic() > deadline:
                raise Unavailable(
                    "not everything became history in time",
                    expected="no segment on its way, and every record queryable",
                    found=f"{before.states}, {before.pending} on their way, {journal.asked} answers",
                    action="look at the runs of rtolap_segment_build in Airflow",
                )
            time.sleep(_ROUND_S)

    def _show_fragments(self, journal: DemoJournal) -> None:
        """Request a checkpoint, as an operator may, once answers out of memory were seen: so few events would
        stay in memory until their segment closes."""
        due = time.monotonic() - self._checkpoint_s > _CHECKPOINT_S
        if due and Moment.MEMORY in journal.moments() and Moment.FRAGMENTS not in journal.moments():
            self._checkpoint_s = time.monotonic()
            ask_again(journal, self._request_checkpoints)

    def _request_checkpoints(self) -> None:
        for receiver in self._answering():
            if any(each.cube == CUBE for each in receiver.stats().cubes):  # it may just be starting
                receiver.action("checkpoint", {"cube": CUBE})

    def _answering(self) -> list[ReceiverClient]:
        """Return the receivers that answer. Paused ones are among them: a warning is no silence."""
        return [
            self._receivers.at(host_port(receiver.host, receiver.port))
            for receiver in self._coordinator.receivers()
            if receiver.health in ("HEALTHY", "WARN")
        ]

    def _caught_up(self, sender: Sender) -> bool:
        return self._screen.progress.queryable == sum(sender.sent.values())

    def _ask_all(self, journal: DemoJournal, recount: Recount, before: Situation, also: set[Moment]) -> None:
        """Ask every query once. A moment counts for an answer when it held before and after it."""
        for query in QUERIES:
            answer = self._answer(journal, query.sql)
            after = self._look(journal)
            self._screen.progress.queryable = sum(
                offset - recount.first[partition] for partition, offset in answer.positions.items()
            )
            journal.note(
                query.name,
                (before.moments & after.moments) | also,
                events=recount.events(answer.positions),
                positions=answer.positions,
                answer=answer.rows,
                recount=recount.answer(query, answer.positions),
            )
            before = after

    def _answer(self, journal: DemoJournal, sql: str) -> DemoAnswer:
        return ask_again(journal, lambda: self._endpoint.ask(sql, CUBE))

    def _look(self, journal: DemoJournal) -> Situation:
        stats = ask_again(journal, lambda: [receiver.stats() for receiver in self._answering()])
        shown = situation(CUBE, self._coordinator.segments(CUBE), self._coordinator.queue().entries, stats)
        journal.observe(shown.moments)
        self._screen.progress.situation = shown
        return shown


def ask_again(journal: DemoJournal, question: Callable[[], T], within_s: float = _ANSWER_TIMEOUT_S) -> T:
    """Return the answer, and repeat the question for `within_s`: a server of a busy machine may answer late.

    The journal counts the questions that got no answer, and the report names them.
    """
    deadline = time.monotonic() + within_s
    while True:
        try:
            return question()
        except RtolapError as error:
            journal.unanswered[error.message] += 1
            if time.monotonic() > deadline:
                raise
            time.sleep(_ROUND_S)


def _wait_for(goal: str, timeout_s: float, holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds():
        if time.monotonic() > deadline:
            raise Unavailable(
                f"waited {timeout_s:.0f} s for {goal}", action="`rtolap stack status` shows more"
            )
        time.sleep(_ROUND_S)


_TIMEOUT_S = 60.0
_POSITIONS_KEY = b"rtolap.positions"


class DemoAnswer(NamedTuple):
    """Rows, and the prefix that they hold. `positions`: partition → next offset."""

    rows: Rows
    positions: dict[int, int]


class SqlClient:
    def __init__(self, url: str, token: str) -> None:
        headers = {"Authorization": f"Bearer {token}", "Accept": ARROW_STREAM}
        self._http = service_client(base_url=url, headers=headers, timeout=_TIMEOUT_S)

    def ask(self, sql: str, cube: str) -> DemoAnswer:
        """Ask the query service. Raises the error that it names, or Unavailable."""
        try:
            response = self._http.post("/api/v1/query", json={"sql": sql})
        except httpx.TransportError as error:
            raise Unavailable("the query service does not answer", found=str(error)) from error
        if response.is_error:
            raise error_of(response)
        table = pa.ipc.open_stream(response.content).read_all()
        stated = (table.schema.metadata or {})[_POSITIONS_KEY]
        positions = decode_json(stated, dict[str, dict[int, int]])
        return DemoAnswer(normal([tuple(row.values()) for row in table.to_pylist()]), positions.get(cube, {}))

    def close(self) -> None:
        self._http.close()
