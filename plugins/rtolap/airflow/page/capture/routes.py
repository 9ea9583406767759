"""The route of change capture: every cluster of HBase that this host knows, and the agent, asked at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, cast

from fastapi import APIRouter, Response

from rtolap.airflow.declared import defined_subscriptions
from rtolap.airflow.hooks.hbase_connection import HBASE_DEFAULT
from rtolap.airflow.hooks.on_demand import open_replication
from rtolap.airflow.hooks.rtolap import RtolapHook
from rtolap.airflow.page.answers import ANSWER_S_MAX, Asked, ask_all, json_answer
from rtolap.airflow.page.capture.looks import capture_of
from rtolap.base.clock import SystemClock
from rtolap.base.errors import RtolapError
from rtolap.base.settings import Settings
from rtolap.model.subscription import HBaseSource, Subscription
from rtolap.protocols.agent.messages import ProcessStatus

if TYPE_CHECKING:
    from rtolap.airflow.hooks.hbase import HBaseReplication
    from rtolap.sep.operations import CaptureLook
    from rtolap.sep.status.model import ReplicationStatus

router = APIRouter()

# A trend needs a look that is neither just now, by somebody else who looks, nor of another day.
_BEFORE_MS_MIN, _BEFORE_MS_MAX = 2_000, 300_000
_AGENT, _CONNECTION = "the agent", f"of connection {HBASE_DEFAULT}"

_clock = SystemClock()


class EarlierLooks:
    """The last look at each cluster that is old enough to compare the next one with. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[str, tuple[ReplicationStatus, ReplicationStatus | None]] = {}

    def before(self, address: str, now_ms: int) -> ReplicationStatus | None:
        """Return the newest look that is old enough; None where there is none, or only one of long ago."""
        with self._lock:
            looks = self._kept.get(address, ())
        for look in looks:
            if look is not None and _BEFORE_MS_MIN <= now_ms - look.at_ms <= _BEFORE_MS_MAX:
                return look
        return None

    def keep(self, address: str, look: ReplicationStatus) -> None:
        """Keep the look, and the last one that was old enough when it was taken."""
        with self._lock:
            newest, older = self._kept.get(address, (None, None))
            if newest is not None and look.at_ms - newest.at_ms >= _BEFORE_MS_MIN:
                older = newest
            self._kept[address] = (look, older)


_earlier = EarlierLooks()


@router.get("/capture")
def capture() -> Response:
    """Answer queues, subscriptions and events that fail, of all clusters that answer in time."""
    replication = open_replication(HBASE_DEFAULT)
    defined, error = _defined()
    sources, placed, unplaced = _placed(replication, defined)

    def look(address: str) -> CaptureLook:
        seen = replication.look(sources[address], _earlier.before(address, _clock.now_ms()))
        _earlier.keep(address, seen.status)
        return seen

    asks: dict[str, Callable[[], object]] = {address: partial(look, address) for address in sources}
    asked = ask_all({**asks, _AGENT: _processes}, ANSWER_S_MAX)
    agent = cast("Asked[tuple[ProcessStatus, ...]]", asked.pop(_AGENT))
    answer = capture_of(
        {**cast("dict[str, Asked[CaptureLook]]", asked), **unplaced},
        {name: (placed[name], each) for name, each in defined.items()},
        agent.answer or (),
        now_ms=_clock.now_ms(),
        agent_error=agent.error,
        definitions_error=error,
    )
    return json_answer(answer)


def _placed(
    replication: HBaseReplication, defined: dict[str, Subscription]
) -> tuple[dict[str, HBaseSource], dict[str, str], dict[str, Asked[CaptureLook]]]:
    """Return the clusters by address, the address of each definition's, and why one has no cluster: a
    connection that names none hides no cluster that a definition names."""
    sources: dict[str, HBaseSource] = {}
    placed: dict[str, str] = {}
    unplaced: dict[str, Asked[CaptureLook]] = {}
    for name, each in ((_CONNECTION, None), *defined.items()):
        try:
            source = replication.source_of(each)
        except RtolapError as error:
            placed[name] = _CONNECTION
            unplaced[_CONNECTION] = Asked(error=str(error))
        else:
            placed[name] = address_of(source)
            sources[placed[name]] = source
    return sources, placed, unplaced


def address_of(source: HBaseSource) -> str:
    return f"{source.zookeeper}{source.parent}"


def _processes() -> tuple[ProcessStatus, ...]:
    with RtolapHook().agent() as agent:
        return agent.processes()


def _defined() -> tuple[dict[str, Subscription], str]:
    """Return this host's definitions, or why they cannot be read: what was made stands without them."""
    try:
        return defined_subscriptions(Settings().include_dir), ""
    except RtolapError as error:
        return {}, str(error)
