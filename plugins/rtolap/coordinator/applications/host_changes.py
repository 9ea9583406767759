"""Changes of who counts: hosts that register, are drained or removed, and lists that were fetched.

Answered when a next owner would know it too.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

from rtolap.base.errors import DefinitionError, NotFound
from rtolap.coordinator.applications.limits import INSTANT_MAX_MS
from rtolap.coordinator.applications.sources import SourceState
from rtolap.metadata.applications import ApplicationRecords, ListedHosts, packed
from rtolap.model.application import HostList
from rtolap.protocols.watermark import messages as wire
from rtolap.protocols.watermark.messages import HOSTS_MAX, check_host_names


class HostChanges:
    """The host changes of one application in one epoch. `lock` is the one that its sources are changed under,
    and `now_ms` is called."""

    def __init__(
        self,
        name: str,
        epoch: int,
        sources: Mapping[str, SourceState],
        records: ApplicationRecords,
        now_ms: Callable[[], int],
        lock: threading.RLock,
    ) -> None:
        self._name = name
        self._epoch = epoch
        self._sources = sources
        self._records = records
        self._now_ms = now_ms
        self._lock = lock
        self._writing = threading.Lock()
        self._kept_epochs = {level: source.hosts.epoch for level, source in sources.items()}

    def change(self, change: wire.HostsChange) -> wire.HostsChanged:
        """Make all of a change or nothing, to a level that is a source. Raises DefinitionError, NotFound,
        Refused."""
        source = self._sources[change.level]
        listed = source.source.hosts
        check_host_names(change.hosts, "hosts")
        if change.end_ms is not None and not 0 <= change.end_ms <= INSTANT_MAX_MS:
            raise DefinitionError(
                "the end of a drain is no instant", expected="ms since the epoch", found=change.end_ms
            )
        lease_ms = listed.registry.lease_ms if listed is not None and listed.registry is not None else None
        if listed is None or (change.action in ("register", "renew") and lease_ms is None):
            kind = "none" if listed is None else listed.kind
            raise DefinitionError(
                f"hosts of {change.level} do not register", expected="a host list of registry", found=kind
            )
        with self._lock:
            if lease_ms is not None and change.action in ("register", "renew"):
                self._refuse_too_many(change.level, change.hosts)
                source.hosts.register(change.hosts, self._now_ms(), lease_ms)
            else:
                _let_go(source, listed, change, self._now_ms())
            source.hosts_changed()
        self.keep(change.level)
        with self._lock:
            return wire.HostsChanged(
                level=change.level,
                list_epoch=source.hosts.epoch,
                counting=source.counting,
                lease_ms=lease_ms,
            )

    def replace(self, level: str, names: Sequence[str]) -> None:
        """Replace the hosts of a level by a list that was fetched. Raises DefinitionError or Refused; the
        former list then stands."""
        source = self._sources[level]
        listed = source.source.hosts
        assert listed is not None, "only sources with a list are fetched for"
        with self._lock:
            self._refuse_too_many(level, names)
            source.hosts.replace(names, self._now_ms(), listed.grace_ms)
            source.hosts_changed()
            source.list_problem = None
            source.listed_once = True
        self.keep(level)

    def _refuse_too_many(self, level: str, names: Sequence[str]) -> None:
        """Refuse, before anything is changed, more than `HOSTS_MAX`, or than a node holds."""
        hosts = self._sources[level].hosts
        fresh = [name for name, at in zip(names, hosts.indices(names).tolist(), strict=True) if at < 0]
        if not fresh:
            return
        retained = [hosts.names[at] for at in hosts.retained().tolist()]
        if len(retained) + len(fresh) > HOSTS_MAX:
            raise DefinitionError(
                "too many hosts", expected=f"at most {HOSTS_MAX}", found=len(retained) + len(fresh)
            )
        packed(ListedHosts(0, (*retained, *fresh)), f"{self._name}/{level}")

    def keep(self, level: str) -> None:
        """Persist the list if it is another one; one write for all that wait for it."""
        source = self._sources[level]
        with self._writing:
            with self._lock:
                if self._kept_epochs[level] == source.hosts.epoch:
                    return
                hosts = source.listed_hosts()
            self._records.keep_hosts(self._name, level, self._epoch, hosts)
            self._kept_epochs[level] = hosts.epoch


def _let_go(source: SourceState, listed: HostList, change: wire.HostsChange, now_ms: int) -> None:
    names = tuple(dict.fromkeys(change.hosts))  # once removed, a host is not there to be removed again
    known = source.hosts.indices(names)
    unknown = [name for name, at in zip(names, known.tolist(), strict=True) if at < 0]
    if unknown:
        raise NotFound(f"{len(unknown)} hosts are not in the list", found=", ".join(unknown[:5]))
    for name in names:
        if change.action == "drain":
            source.hosts.drain(name, change.end_ms, now_ms, listed.grace_ms)
        else:
            source.hosts.remove(name)
    if change.action == "remove":
        source.progress.forget(known)
