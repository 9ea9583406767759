"""Counters of sources that only the region servers' own pages tell: JMX over HTTP."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import httpx
import msgspec

from rtolap.base.addresses import host_port
from rtolap.base.decoding import decode_json
from rtolap.base.ids import CarryingPool
from rtolap.protocols.rest.clients import SHARED_BY_THREADS
from rtolap.sep.status.model import MissingSource

_QUERY = "/jmx?qry=Hadoop:service=HBase,name=RegionServer,sub=Replication"
_THREADS = 16
_MISSING_NAMED_MAX = 5


class SourceCounters(msgspec.Struct, frozen=True):
    """Counters that count since the server started."""

    failed_batches: int = 0


class JmxPages(msgspec.Struct, frozen=True):
    """The counters of JMX pages.

    Attributes:
        by_server: counters by queue id, of servers with a page of their own.
        shared: counters of pages that several servers of a JVM share; equal queue ids are one counter there.
        missing: the pages that could not be read.
    """

    by_server: dict[str, dict[str, SourceCounters]]
    shared: dict[str, SourceCounters]
    missing: tuple[MissingSource, ...] = ()


class _Beans(msgspec.Struct):
    beans: list[dict[str, msgspec.Raw]] = []


class JmxReader:
    """Asks each server's page, and the `shared_urls` (`http://host:port`) beside them."""

    def __init__(self, shared_urls: Iterable[str] = (), *, timeout_s: float = 3.0) -> None:
        self._shared_urls = tuple(url.rstrip("/") for url in shared_urls)
        self._http = httpx.Client(timeout=timeout_s, limits=SHARED_BY_THREADS, trust_env=False)

    def close(self) -> None:
        self._http.close()

    def read(self, info_ports: Mapping[str, int]) -> JmxPages:
        """Read the pages of `info_ports`, by server as host,port,startcode. Pages that do not answer are
        named, and are no error."""
        urls = {
            server: f"http://{host_port(server.partition(',')[0], port)}"
            for server, port in info_ports.items()
        }
        targets = [*urls.items(), *(("", url) for url in self._shared_urls)]
        if not targets:
            return JmxPages({}, {}, (MissingSource("JMX", "no region server serves its page"),))
        with CarryingPool(min(_THREADS, len(targets))) as pool:
            answers = list(pool.map(lambda target: self._page(target[1]), targets))
        by_server: dict[str, dict[str, SourceCounters]] = {}
        shared: dict[str, SourceCounters] = {}
        silent: list[str] = []
        for (server, url), answer in zip(targets, answers, strict=True):
            if isinstance(answer, str):
                silent.append(f"{url}: {answer}")
            elif server:
                by_server[server] = answer
            else:
                shared |= answer
        if len(silent) > _MISSING_NAMED_MAX:
            silent[_MISSING_NAMED_MAX:] = [f"{len(silent) - _MISSING_NAMED_MAX} more"]
        missing = (MissingSource("JMX", "; ".join(silent)),) if silent else ()
        return JmxPages(by_server, shared, missing)

    def _page(self, url: str) -> dict[str, SourceCounters] | str:
        """Return the counters by queue id, or why there are none."""
        try:
            answer = self._http.get(url + _QUERY)
            answer.raise_for_status()
            return parse_jmx(answer.content)
        except (httpx.HTTPError, msgspec.DecodeError) as error:
            return str(error) or type(error).__name__


def parse_jmx(content: bytes) -> dict[str, SourceCounters]:
    """Return counters by queue id, and by anything else whose keys HBase builds in the same way. Raises
    DecodeError.

    Keys are `source.<queue id>.<counter>`; hosts in the id of a recovered queue hold dots too.
    """
    counters: dict[str, SourceCounters] = {}
    for bean in decode_json(content, _Beans).beans:
        for key, value in bean.items():
            queue, _, counter = key.removeprefix("source.").rpartition(".")
            if key.startswith("source.") and queue and counter == "failedBatches":
                counters[queue] = SourceCounters(decode_json(value, int))
    return counters
