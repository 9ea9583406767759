"""A cube of a fleet's access logs, closed by its application, with what is known of each of its windows."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import msgspec
from rtolap.cubes.format.history import read_manifest
from rtolap.cubes.format.manifest import MANIFEST_NAME, HistoryManifest
from rtolap.model.application import Application
from rtolap.model.segment import SegmentRange
from rtolap.model.yaml_files import read_definitions
from rtolap.object_store.store import open_store
from rtolap.protocols.coordinator.client import CoordinatorClient
from rtolap.protocols.coordinator.messages import SegmentInfo
from rtolap.protocols.watermark.messages import Explanation

from tests.support.cubes.day_stream import declare_cube
from tests.support.watermarks.host_stream import Counts

CUBE = "hits"


class Window(NamedTuple):
    """`number` from the first one on, in event time."""

    number: int
    start_ms: int
    end_ms: int


class AccessLogs:
    """The definitions of `file`, with their topic and the fleet's names in place. `ask`: SQL's endpoint."""

    def __init__(
        self,
        file: Path,
        *,
        topic: str,
        host_list: Path,
        coordinator: CoordinatorClient,
        ask: Callable[[str], dict[str, Any]],
    ) -> None:
        found = read_definitions(file)
        self.schema = found.schema(CUBE)
        (self.application,) = (_with_hosts(one, host_list) for one in found.applications.values())
        self._topic = topic
        self._coordinator = coordinator
        self._ask = ask

    @property
    def window_ms(self) -> int:
        return self.schema.cube.segment.window_ms

    @property
    def allowed_ppm(self) -> int:
        (source,) = self.application.sources
        assert source.rule.deficit is not None
        return source.rule.deficit.missing_events_ppm

    def define(self) -> None:
        """Create and enable; topic and host list exist already."""
        table = msgspec.structs.replace(self.schema.table, topic=self._topic)
        self._coordinator.create_application(msgspec.to_builtins(self.application))
        declare_cube(self._coordinator, table, self.schema.cube)

    def explain(self, window: Window) -> Explanation:
        return self._coordinator.explain_window(self.application.name, window.end_ms)

    def segment(self, window: Window) -> SegmentInfo | None:
        """Return None while the cluster does not know of it."""
        name = SegmentRange(window.start_ms, window.end_ms).name
        found = [one for one in self._coordinator.segments(CUBE) if one.segment == name]
        return self._coordinator.segment(CUBE, name) if found else None

    def closed_ms(self, window: Window) -> int | None:
        """Return when the window's first closing was written down."""
        segment = self.segment(window)
        state_history = () if segment is None else segment.state_history
        return next((line.at_ms for line in state_history if line.event == "CLOSE"), None)

    def answer(self, ends: dict[int, int]) -> Counts | None:
        """Return the result by SQL, once it holds all up to these offsets; None before."""
        try:
            found = self._ask(
                f"SELECT host, status, COUNT(*), SUM(bytes_sent) FROM {CUBE} GROUP BY host, status"
            )
        except httpx.HTTPStatusError as error:
            if error.response.status_code >= httpx.codes.INTERNAL_SERVER_ERROR:
                return None  # no receiver answers yet
            raise
        if found["positions"].get(CUBE) != {str(partition): end for partition, end in ends.items()}:
            return None
        return {(host, status): (events, int(total)) for host, status, events, total in found["rows"]}


def finished_manifests(store: Path, segment: SegmentInfo, version: int) -> list[HistoryManifest]:
    """Return the manifests of all finished attempts at that version; the files are read as they lie there."""
    folder = store / "history" / segment.cube
    found = sorted(path.parent for path in folder.glob(f"*/{segment.segment}/v{version}-*/{MANIFEST_NAME}"))
    history = open_store(store.as_uri())
    return [read_manifest(history, path.relative_to(store).as_posix()) for path in found]


def write_host_list(path: Path, names: Collection[str]) -> None:
    path.write_text("".join(f"{name}\n" for name in names))


def _with_hosts(one: Application, host_list: Path) -> Application:
    (source,) = one.sources
    assert source.hosts is not None
    hosts = msgspec.structs.replace(source.hosts, file=str(host_list))
    return msgspec.structs.replace(one, sources=(msgspec.structs.replace(source, hosts=hosts),))
