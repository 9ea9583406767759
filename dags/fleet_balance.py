"""Plans for the brokers of a Kafka cluster, each approved by a person in Airflow's own form.

Started by hand. Nothing else may be moving. A plan is made of the cluster as it is, shown with its reasons,
bytes and time, and handed to the cluster's mover as it was approved; if the cluster has changed since, it is
refused. A run ends when the moves have ended and every replica is in sync. `rtolap_fleet_cancel` cancels a
plan that is carried out, and what is incomplete is undone.
"""

from __future__ import annotations

from rtolap.airflow.fleet_dags import cancel_dag, fleet_dag

balance = fleet_dag("rtolap_fleet_balance", "disks", "Move replicas to idle disks?", __doc__)
rack_repair = fleet_dag(
    "rtolap_fleet_rack_repair", "rack", "Move replicas apart, to racks of their own?", __doc__
)
drain = fleet_dag(
    "rtolap_fleet_drain", "drain", "Move all replicas away from a broker?", __doc__, of_broker=True
)
cancel = cancel_dag("rtolap_fleet_cancel", __doc__)
