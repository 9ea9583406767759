"""`rtolap fleet serve`: the mover of a Kafka cluster; start several, and one of them works."""

from __future__ import annotations

import os
import signal
import socket

from rtolap.base.clock import SystemClock
from rtolap.base.settings import Settings
from rtolap.cli.fleet.access import ClusterOption, open_administration
from rtolap.cli.fleet.metadata_access import open_metadata
from rtolap.cli.serving import service_settings
from rtolap.fleet.moves.kept import KeptFleet
from rtolap.fleet.moves.mover import Mover
from rtolap.kafka.administration.interface import FleetAdministration
from rtolap.metadata import paths
from rtolap.metadata.store import MetadataStore
from rtolap.model.table import DEFAULT_KAFKA_CLUSTER


def serve(cluster: ClusterOption = DEFAULT_KAFKA_CLUSTER) -> None:
    """Carry out the plans that are submitted for a cluster, until it is stopped; what moves then goes on, and
    whoever serves next takes it up."""
    settings = service_settings()
    with open_administration(cluster) as administration, open_metadata(settings) as store:
        serve_cluster(settings, administration, store)


def serve_cluster(settings: Settings, administration: FleetAdministration, store: MetadataStore) -> None:
    cluster_id = administration.describe_cluster().cluster_id
    identity = f"{socket.gethostname()}:{os.getpid()}"
    election = store.elect(paths.fleet_lease(cluster_id), identity, lambda: None)
    try:
        mover = Mover(
            administration,
            KeptFleet(store, cluster_id),
            election.fence,
            SystemClock(),
            settings.token(),
            identity=identity,
        )
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: mover.stop())
        mover.run()
    finally:
        election.close()
