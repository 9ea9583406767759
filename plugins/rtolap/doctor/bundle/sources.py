"""The parts of a support bundle. Each is collected by itself: one that fails hides no other."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as PartTimeout
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from rtolap.base.errors import RtolapError
from rtolap.base.settings import Settings
from rtolap.base.tls import trust
from rtolap.doctor.bundle.archive import Archive
from rtolap.doctor.bundle.log_tails import log_tails
from rtolap.doctor.bundle.masking import Mask, secrets_of_host
from rtolap.doctor.examination import LOOK_S_MAX, examine
from rtolap.doctor.services import ANSWER_S_MAX, coordinator
from rtolap.protocols.agent.client import AgentClient
from rtolap.protocols.coordinator.client import CoordinatorClient
from rtolap.protocols.coordinator.messages import CubeStatus, MetricsTargets
from rtolap.protocols.rest.request import headers

LOG_BYTES_MAX = 4 << 20
LOGS_BYTES_MAX = 64 << 20
_PAGE_BYTES_MAX = 8 << 20
_TARGETS = "cluster/metrics_targets.json"
_ASKED_AT_ONCE_MAX = 8


class Part(NamedTuple):
    """A member, and who makes it: text, or a plain value that becomes JSON."""

    name: str
    make: Callable[[], Any]


def collect(
    settings: Settings,
    environ: Mapping[str, str] = os.environ,
    *,
    more: Sequence[Part] = (),
    log_folders: Sequence[Path] = (),
    log_bytes_max: int = LOG_BYTES_MAX,
    each_s: float = LOOK_S_MAX,
) -> Archive:
    """Return the archive of everything that this host can get.

    more: parts that other rooms know. log_folders: beside that of the agent. each_s: seconds for each part.
    """
    archive = Archive(Mask(secrets_of_host(settings, environ)))
    pool = ThreadPoolExecutor(max_workers=_ASKED_AT_ONCE_MAX, thread_name_prefix="bundle")
    try:
        first = [*_of_host(settings, each_s), *_of_cluster(settings), *more]
        made = _add_parts(archive, pool, first, each_s)
        cubes, targets = made.get("cluster/cubes.json", ()), made.get(_TARGETS, ())
        _add_parts(archive, pool, [*_of_cubes(settings, cubes), *_of_metrics(settings, targets)], each_s)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    folders = (settings.data_dir / "agent" / "logs", *log_folders)
    for tail in log_tails(folders, each_bytes_max=log_bytes_max, bytes_max=LOGS_BYTES_MAX):
        if tail.text is None:
            archive.add_missing(f"logs/{tail.name}", tail.problem)
        else:
            archive.add_text(f"logs/{tail.name}", tail.text, tail.problem and f"it lacks {tail.problem}")
    return archive


def _add_parts(
    archive: Archive, pool: ThreadPoolExecutor, parts: Sequence[Part], each_s: float
) -> dict[str, Any]:
    """Add what the parts make, and return it by name. Whatever a part raises is an entry."""
    values: dict[str, Any] = {}
    for part, future in [(part, pool.submit(part.make)) for part in parts]:
        try:
            error = future.exception(timeout=2 * each_s)
        except PartTimeout:
            archive.add_missing(part.name, f"no answer within {2 * each_s:g} s")
            continue
        if isinstance(error, RtolapError):
            archive.add_missing(part.name, str(error))
        elif error is not None:
            archive.add_missing(part.name, f"{type(error).__name__}: {error}")
        elif isinstance(made := future.result(), str):
            archive.add_text(part.name, made)
        else:
            values[part.name] = made
            archive.add_value(part.name, made)
    return values


def _of_host(settings: Settings, each_s: float) -> list[Part]:
    return [
        Part("doctor.json", lambda: list(examine(settings, each_s=each_s))),
        Part("versions.json", versions),
        Part("settings.json", lambda: settings.model_dump(mode="json")),
        Part("agent/processes.json", lambda: _processes(settings)),
    ]


def versions() -> dict[str, Any]:
    """Return the versions of Python, of the system and of every installed package."""
    packages = {each.metadata["Name"]: each.version for each in distributions()}
    return {
        "python": sys.version,
        "system": platform.platform(),
        "packages": dict(sorted(packages.items(), key=lambda each: str(each[0]).lower())),
    }


def _processes(settings: Settings) -> object:
    with AgentClient(settings.agent_url(), settings.token()) as agent:
        return agent.processes()


def _asked(settings: Settings, ask: Callable[[CoordinatorClient], Any]) -> Any:
    with coordinator(settings) as client:
        return ask(client)


_CLUSTER: dict[str, Callable[[CoordinatorClient], Any]] = {
    "cluster": lambda client: client.cluster(),
    "receivers": lambda client: client.receivers(),
    "replica_sets": lambda client: client.replica_sets(),
    "cubes": lambda client: client.cubes(),
    "metrics_targets": lambda client: client.metrics_targets(),
    "builds": lambda client: client.queue(),
    "tables": lambda client: {name: client.table(name) for name in client.tables()},
    "lookups": lambda client: client.lookups(),
    "applications": lambda client: {name: client.application(name) for name in client.applications()},
}


def _of_cluster(settings: Settings) -> list[Part]:
    return [
        Part(f"cluster/{name}.json", lambda ask=ask: _asked(settings, ask))  # type: ignore[misc]
        for name, ask in _CLUSTER.items()
    ]


def _of_cubes(settings: Settings, cubes: Sequence[CubeStatus]) -> list[Part]:
    return [
        Part(
            f"cluster/segments/{name}.json",
            lambda name=name: _asked(settings, lambda client: client.segments(name)),  # type: ignore[misc]
        )
        for name in (cube.name for cube in cubes)
    ]


def _of_metrics(settings: Settings, targets: Sequence[MetricsTargets]) -> list[Part]:
    urls: dict[str, Path | None] = dict.fromkeys(settings.coordinator_urls())
    urls[settings.agent_url()] = None
    urls[settings.query_url()] = settings.query_ca
    urls |= dict.fromkeys(settings.stream_load_urls(), settings.stream_load_ca)
    for address in (address for each in targets for address in each.targets):
        urls.setdefault(f"http://{address}", None)
    return [
        Part(
            f"metrics/{url.partition('://')[2].rpartition('@')[2].replace('/', '_')}.txt",
            lambda url=url, ca=ca: _page(settings, f"{url}/metrics", ca),  # type: ignore[misc]
        )
        for url, ca in urls.items()
    ]


def _page(settings: Settings, url: str, ca: Path | None) -> str:
    with httpx.stream(
        "GET",
        url,
        headers=headers(settings.token()),
        timeout=ANSWER_S_MAX,
        verify=trust(ca),
        trust_env=False,
    ) as answer:
        data = b""
        for chunk in answer.iter_bytes():
            data += chunk
            if len(data) > _PAGE_BYTES_MAX:
                raise RtolapError(f"{url} has more than {_PAGE_BYTES_MAX} bytes")
    if answer.status_code != httpx.codes.OK:
        raise RtolapError(f"{url} answers {answer.status_code}")
    return data.decode("utf-8", "replace")
