"""Client quotas: declared ones are compared with those in force, and the alterations between them are
applied.

A quota that is declared and missing, or that has another value, is set. One that is in force and nobody
declared is removed where the registry says so, and otherwise only named. `apply_quotas` looks afterwards
whether quotas are in force:

    1  commit an entry that says who sets what, and why
    2  send the alterations, in one request
    3  note on the entry that they were taken
    4  read all quotas again, until what was sent is in force: what still differs is returned. The broker that
       answers may know of the alterations a moment later than the controller, and much later where it is busy

Alterations may be sent twice. An entry without the note of 3 is of a process that ended, or was refused, in
2.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec
from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

from rtolap.base.clock import Clock
from rtolap.base.errors import Refused
from rtolap.fleet.isolation.findings import Finding, FindingKind, Severity
from rtolap.fleet.snapshot.model import Quota
from rtolap.kafka.administration.interface import FleetAdministration
from rtolap.metadata import codec, paths
from rtolap.metadata.store import MetadataStore
from rtolap.metadata.updates import update
from rtolap.model.fleet import DEFAULT_ENTITY, FleetCluster

IN_FORCE_S_MAX = 20.0
_LOOK_S = 0.1

Entity = tuple[tuple[str, str | None], ...]


class QuotaDifference(msgspec.Struct, frozen=True):
    """A quota that differs from the registry.

    Attributes:
        declared: None where none is declared.
        live: None where none is set.
        applies: Applying the registry changes it.
    """

    entity: Entity
    key: str
    declared: float | None
    live: float | None
    applies: bool = True

    @property
    def named(self) -> str:
        """Return the entity as Kafka's own tool writes it."""
        return entity_text(self.entity)


def entity_text(entity: Entity) -> str:
    return ", ".join(f"{kind}={DEFAULT_ENTITY if name is None else name}" for kind, name in entity)


def quota_differences(cluster: FleetCluster, quotas: Iterable[Quota]) -> tuple[QuotaDifference, ...]:
    """Return them by entity and key, so that the same registry and cluster give the same alterations."""
    declared = {(quota.entity, key): value for quota in cluster.quotas for key, value in quota.rates.items()}
    live = {(quota.entity, quota.key): quota.value for quota in quotas}
    found = []
    for entity, key in sorted(declared.keys() | live.keys(), key=_order):
        wanted, value = declared.get((entity, key)), live.get((entity, key))
        if wanted != value:
            applies = wanted is not None or cluster.undeclared_quotas == "remove"
            found.append(QuotaDifference(entity, key, wanted, value, applies))
    return tuple(found)


def quota_alterations(differences: Iterable[QuotaDifference]) -> dict[Entity, dict[str, float | None]]:
    """Return what is to be set, by entity; None removes."""
    alterations: dict[Entity, dict[str, float | None]] = {}
    for each in differences:
        if each.applies:
            alterations.setdefault(each.entity, {})[each.key] = each.declared
    return alterations


def quota_findings(differences: Iterable[QuotaDifference]) -> list[Finding]:
    return [
        Finding(
            kind=FindingKind.QUOTA,
            severity=Severity.WARNING if each.applies else Severity.INFO,
            subject=each.named,
            message="a client quota is not as declared" if each.applies else "nobody declared a client quota",
            expected=f"{each.key}={_value(each.declared)}",
            found=_value(each.live),
            repair="rtolap fleet quotas --apply" if each.applies else "declare it, or remove it",
        )
        for each in differences
    ]


def _order(quota: tuple[Entity, str]) -> tuple[tuple[tuple[str, bool, str], ...], str]:
    entity, key = quota
    return tuple((kind, name is not None, name or "") for kind, name in entity), key


def _value(value: float | None) -> str:
    return "none" if value is None else f"{value:.15g}"


class QuotaChange(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of the log of quotas.

    Attributes:
        taken: Kafka has accepted the changes.
    """

    operation_id: str
    at_ms: int
    by: str
    reason: str
    differences: tuple[QuotaDifference, ...]
    taken: bool = False


def quota_changes(store: MetadataStore, cluster_id: str) -> tuple[QuotaChange, ...]:
    """Return every change of a cluster's quotas, the oldest first."""
    folder = paths.fleet_quota_changes(cluster_id)
    nodes = ((name, store.get(f"{folder}/{name}")) for name in store.children(folder))
    found = (codec.decode(node.data, QuotaChange, f"{folder}/{name}") for name, node in nodes if node)
    return tuple(sorted(found, key=lambda change: (change.at_ms, change.operation_id)))


def live_differences(
    cluster: FleetCluster, administration: FleetAdministration
) -> tuple[QuotaDifference, ...]:
    """Return the differences between declared and live quotas. Raises Refused where the registry means
    another cluster."""
    if cluster.cluster_id is not None:
        found = administration.describe_cluster().cluster_id
        if found != cluster.cluster_id:
            raise Refused("quotas of another cluster", expected=cluster.cluster_id, found=found)
    live = administration.client_quotas()
    quotas = (Quota(each.entity, key, value) for each in live for key, value in each.values.items())
    return quota_differences(cluster, quotas)


def apply_quotas(
    cluster: FleetCluster,
    differences: Collection[QuotaDifference],
    administration: FleetAdministration,
    store: MetadataStore,
    clock: Clock,
    *,
    operation_id: str,
    by: str,
    reason: str,
) -> tuple[QuotaDifference, ...]:
    """Return what differs afterwards; what the registry leaves alone is among it.

    Waits until a broker knows what was sent, at most IN_FORCE_S_MAX.
    """
    alterations = quota_alterations(differences)
    if not alterations:
        return tuple(differences)
    path = paths.fleet_quota_change(administration.describe_cluster().cluster_id, operation_id)
    applied = tuple(each for each in differences if each.applies)
    change = QuotaChange(
        operation_id=operation_id, at_ms=clock.now_ms(), by=by, reason=reason, differences=applied
    )
    taken = msgspec.structs.replace(change, taken=True)
    update(store, path, QuotaChange, lambda known: known or change)
    administration.alter_client_quotas(alterations)
    update(store, path, QuotaChange, lambda known: known if known is None or known.taken else taken)
    reading = Retrying(
        stop=stop_after_delay(IN_FORCE_S_MAX),
        wait=wait_fixed(_LOOK_S),
        retry=retry_if_result(lambda left: any(each.applies for each in left)),
        retry_error_callback=lambda state: state.outcome.result() if state.outcome is not None else (),
    )
    return reading(live_differences, cluster, administration)
