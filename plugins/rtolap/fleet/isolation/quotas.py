"""Client quotas: what is declared against what is in force, as alterations.

A quota that is declared and missing, or that has another value, is set. One that is in force and nobody
declared is removed where the registry says so, and otherwise only named.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from rtolap.fleet.isolation.findings import Finding, FindingKind, Severity
from rtolap.fleet.snapshot.model import Quota
from rtolap.model.fleet import DEFAULT_ENTITY, FleetCluster

Entity = tuple[tuple[str, str | None], ...]


class QuotaDifference(msgspec.Struct, frozen=True):
    """declared, live: None where there is none. applies: whether applying the registry changes it."""

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
    """By entity and key, so that the same registry and cluster give the same alterations."""
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


def quota_findings(name: str, differences: Iterable[QuotaDifference]) -> list[Finding]:
    return [
        Finding(
            cluster=name,
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
