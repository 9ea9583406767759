"""Small registries of Kafka fleets, as files."""

from __future__ import annotations

from pathlib import Path


def registered(folder: Path, *placement: str, cluster: str = "default", **cluster_settings: str) -> Path:
    """Write a registry with one cluster. `placement`: its rules, as YAML."""
    settings = "".join(f"    {key}: {value}\n" for key, value in cluster_settings.items())
    rules = "".join(f"      - {rule}\n" for rule in placement)
    file = folder / "clusters.yaml"
    file.write_text(
        "kind: kafka_fleet\nname: shop\ntopics:\n  - {match: ['*'], business: shop}\nclusters:\n"
        f"  {cluster}:\n    businesses: [shop]\n    replication_factor: 2\n    min_in_sync: 1\n"
        f"{settings}    placement:\n{rules or '      []'}\n"
    )
    return file
