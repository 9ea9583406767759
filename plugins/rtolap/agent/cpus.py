"""Assigns processors to the processes of a host: kinds that must not slow each other down stay apart.

`RTOLAP_AGENT_CPUS` pins kinds of processes, the first part of their keys: `receiver=0-3,8; build=numa:1`.
Who is not named runs anywhere. Two kinds never share a physical core, for its threads share its caches.
A process on one NUMA node has its memory there as well, since Linux gives memory where it is touched first.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from rtolap.base.errors import DefinitionError

SYSTEM = Path("/sys/devices/system")
_KIND = re.compile(r"[a-z][a-z0-9_-]*")
_NUMA = "numa:"
_SETTING = "RTOLAP_AGENT_CPUS"


class Processors(msgspec.Struct, frozen=True):
    """A host's processors.

    Attributes:
        usable: those that this process may use.
        cores: processor → the processors of its physical core.
        numa_nodes: number → processors.
    """

    usable: frozenset[int]
    cores: Mapping[int, frozenset[int]]
    numa_nodes: Mapping[int, frozenset[int]]


def host_processors(system: Path = SYSTEM) -> Processors:
    """Return the processors of this host, as Linux reports them."""
    usable = frozenset(os.sched_getaffinity(0))
    cores = {}
    for cpu in usable:
        siblings = system / "cpu" / f"cpu{cpu}" / "topology" / "thread_siblings_list"
        cores[cpu] = _numbers(siblings.read_text()) if siblings.exists() else frozenset({cpu})
    nodes = {
        int(folder.name.removeprefix("node")): _numbers((folder / "cpulist").read_text())
        for folder in (system / "node").glob("node[0-9]*")
    }
    return Processors(usable, cores, nodes)


def parse_cpus(text: str, host: Processors) -> dict[str, frozenset[int]]:
    """Return the processors of each kind of process. Raises DefinitionError for an unknown form, processor or
    node, and for kinds that share a physical core."""
    kinds: dict[str, frozenset[int]] = {}
    for part in filter(None, map(str.strip, text.split(";"))):
        kind, equals, listed = (word.strip() for word in part.partition("="))
        if not equals or not _KIND.fullmatch(kind) or kind in kinds:
            raise DefinitionError(
                f"{_SETTING} cannot be read", expected="kind=processors, each kind once", found=part
            )
        kinds[kind] = _listed(listed, part, host)
    owners: dict[frozenset[int], str] = {}
    for kind, cpus in kinds.items():
        for core in {host.cores.get(cpu, frozenset({cpu})) for cpu in cpus}:
            if owners.setdefault(core, kind) != kind:
                raise DefinitionError(
                    f"{_SETTING}: {owners[core]} and {kind} share a physical core",
                    expected="kinds on cores of their own",
                    found=f"processors {', '.join(map(str, sorted(core)))}",
                )
    return kinds


def _listed(text: str, part: str, host: Processors) -> frozenset[int]:
    try:
        if text.startswith(_NUMA):
            cpus = host.numa_nodes[int(text.removeprefix(_NUMA))] & host.usable
        else:
            cpus = _numbers(text)
    except (KeyError, ValueError):
        nodes = ", ".join(f"{_NUMA}{node}" for node in sorted(host.numa_nodes))
        raise DefinitionError(
            f"{_SETTING} cannot be read", expected=f"processors as 0-3,8, or one of {nodes}", found=part
        ) from None
    if not cpus or not cpus <= host.usable:
        raise DefinitionError(
            f"{_SETTING} names processors that are not there",
            expected=f"some of {', '.join(map(str, sorted(host.usable)))}",
            found=part,
        )
    return cpus


def _numbers(text: str) -> frozenset[int]:
    """Parse a list as Linux writes it: 0-3,8. Raises ValueError."""
    numbers: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, dash, last = part.partition("-")
        numbers.update(range(int(first), int(last if dash else first) + 1))
    return frozenset(numbers)


@contextmanager
def inherited(cpus: frozenset[int] | None) -> Iterator[None]:
    """Have what this thread starts run on `cpus` from its first instruction; None: as this thread."""
    if cpus is None:
        yield
        return
    before = os.sched_getaffinity(0)  # 0 is the calling thread: others of this process are not moved
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
