"""The repair and the retirement of a Kafka broker, step by step, each with a person's approval.

Started by hand. A repair lets a broker be stopped once every partition stays writable without it, waits until
a person says that its machine is well, and ends when it serves and every replica is in sync. A retirement
moves everything away, lets the machine go when it is empty, and ends when the cluster has forgotten the
broker.
"""

from __future__ import annotations

from rtolap.airflow.fleet_dags import repair_dag, retire_dag

repair = repair_dag("rtolap_fleet_repair", __doc__)
retire = retire_dag("rtolap_fleet_retire", __doc__)
