"""Host lists from files, addresses and nodes, fetched off the tick; a failure keeps the last and is shown.

They may be read from declared places only: the author of an application may not read what the coordinators
can.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import httpx

from rtolap.base.addresses import bracketed
from rtolap.base.clock import Clock
from rtolap.base.errors import DefinitionError, NotFound, RtolapError, Unavailable
from rtolap.base.settings import Settings
from rtolap.base.tls import trust
from rtolap.coordinator.applications.running import RunningApplication
from rtolap.metadata.store import MetadataStore
from rtolap.model.application import Application, HostList
from rtolap.protocols.rest.clients import beginning_of
from rtolap.protocols.watermark.messages import HOSTS_MAX, check_host_names

log = logging.getLogger(__name__)

LIST_BYTES_MAX = 32 * 1024 * 1024
TIMEOUT_S = 10.0
_WORKERS = 4


class ListPlaces(NamedTuple):
    """Places that host lists may come from.

    Attributes:
        servers: `host` for any port of it, or `host:port`.
    """

    folders: Sequence[Path] = ()
    servers: Sequence[str] = ()

    @classmethod
    def of(cls, settings: Settings) -> ListPlaces:
        folders = _words(settings.host_list_folders)
        return cls(
            tuple(map(Path, folders)) or (settings.include_dir,), tuple(_words(settings.host_list_servers))
        )

    def check(self, listed: HostList) -> None:
        """Raise DefinitionError for a file or an address elsewhere; symbolic links are followed first."""
        if listed.file is not None:
            path = Path(listed.file).resolve()
            if not any(path.is_relative_to(folder.resolve()) for folder in self.folders):
                raise DefinitionError(
                    f"no host list is read from {listed.file}",
                    expected=f"a file below {', '.join(map(str, self.folders)) or 'a declared folder'}",
                    action="name its folder in RTOLAP_HOST_LIST_FOLDERS of the coordinators",
                )
        if listed.url is not None:
            parts = urlsplit(listed.url)
            host = parts.hostname or ""
            named = {host, bracketed(host), f"{bracketed(host)}:{parts.port}"}
            if parts.scheme not in ("http", "https") or not named & set(self.servers):
                raise DefinitionError(
                    f"no host list is fetched from {parts.hostname}",
                    expected=f"one of {', '.join(self.servers) or 'no servers: none is declared'}",
                    action="name it in RTOLAP_HOST_LIST_SERVERS of the coordinators, as host or host:port",
                )

    def check_application(self, application: Application) -> None:
        for source in application.sources:
            if source.hosts is not None:
                self.check(source.hosts)


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


class HostLists:
    """`start` what is due; one fetch of a list at a time."""

    def __init__(self, store: MetadataStore, clock: Clock, places: ListPlaces) -> None:
        self._store = store
        self._places = places
        self._clock = clock
        self._pool = ThreadPoolExecutor(_WORKERS, thread_name_prefix="coordinator-host-lists")
        self._fetching: dict[tuple[str, int, str], Future[None]] = {}
        self._next_s: dict[tuple[str, int, str], float] = {}

    def start(self, running: RunningApplication) -> None:
        now_s = self._clock.monotonic_s()
        for level, source in running.sources.items():
            listed = source.source.hosts
            key = (running.application.name, running.epoch, level)
            under_way = self._fetching.get(key)
            if listed is None or listed.kind == "registry" or self._next_s.get(key, now_s) > now_s:
                continue
            if under_way is None or under_way.done():
                self._next_s[key] = now_s + listed.refresh_ms / 1000
                self._fetching[key] = self._pool.submit(self._fetch, running, level, listed)

    def keep_only(self, running: set[tuple[str, int]]) -> None:
        for key in [key for key in self._next_s if key[:2] not in running]:
            self._next_s.pop(key)
            self._fetching.pop(key, None)

    def settle(self) -> None:
        """Wait for what is under way."""
        for future in list(self._fetching.values()):
            future.result(TIMEOUT_S * 2)

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _fetch(self, running: RunningApplication, level: str, listed: HostList) -> None:
        source = running.sources[level]
        try:
            running.replace_hosts(level, read_list(listed, self._store, self._places))
        except RtolapError as error:
            problem = f"{running.application.name}/{level}: the host list is not read again: {error}"
            if source.list_problem != problem:
                log.warning("%s", problem)
            source.list_problem = problem
        except Exception as error:  # the fetch runs beside the tick, where nothing else would report it
            log.exception("host list of %s/%s", running.application.name, level)
            source.list_problem = f"{running.application.name}/{level}: {type(error).__name__}: see the log"


def read_list(listed: HostList, store: MetadataStore, places: ListPlaces) -> list[str]:
    """Return the names of a list, which may be read from permitted places only.

    An empty list is an error, because every window could close by it. No error repeats the content of a file.
    """
    places.check(listed)  # again: where a link leads may have changed since the declaration
    match listed.kind:
        case "file":
            names = _lines(_file(str(listed.file)))
        case "url":
            names = _lines(_fetched(str(listed.url)))
        case _:
            names = list(store.children(str(listed.zookeeper)))
    place = listed.file or listed.url or listed.zookeeper
    if not names:
        raise DefinitionError(f"{place} lists nobody", expected="a name a line, or a child node a host")
    if len(names) > HOSTS_MAX:
        raise DefinitionError(f"{place} lists too many", expected=f"at most {HOSTS_MAX}", found=len(names))
    check_host_names(names, str(place))
    return names


def _lines(text: str) -> list[str]:
    stripped = (line.strip() for line in text.splitlines())
    return [line for line in stripped if line and not line.startswith("#")]


def _file(path: str) -> str:
    try:
        with Path(path).open("rb") as file:
            data = file.read(LIST_BYTES_MAX + 1)
    except FileNotFoundError as error:
        raise NotFound(f"{path} does not exist", action="write it where the coordinators run") from error
    except OSError as error:
        raise Unavailable(f"{path} cannot be read", found=error.strerror) from error
    return _text(data, path)


def _fetched(url: str) -> str:
    try:
        with httpx.stream(
            "GET", url, timeout=TIMEOUT_S, follow_redirects=False, verify=trust(None), trust_env=True
        ) as response:
            if not response.is_success:
                raise Unavailable(f"{url} gives no host list", expected=200, found=response.status_code)
            data = beginning_of(response, LIST_BYTES_MAX + 1)
    except httpx.HTTPError as error:
        raise Unavailable(f"{url} does not answer", found=str(error) or type(error).__name__) from error
    return _text(data, url)


def _text(data: bytes, place: str) -> str:
    if len(data) > LIST_BYTES_MAX:
        raise DefinitionError(f"{place} is too large", expected=f"at most {LIST_BYTES_MAX} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise DefinitionError(f"{place} is no text", expected="UTF-8, a name a line") from error
