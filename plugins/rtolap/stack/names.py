"""The names in `stack.json`: of the parts, and of the ports with what they are by default."""

from __future__ import annotations

# In the order in which they are shown; `components` says what each of them is.
COMPONENT_NAMES = (
    "zookeeper",
    "kafka",
    "mariadb",
    "hbase",
    "coordinator",
    "stream-load",
    "storage",
    "agent",
    "query",
    "airflow-api",
    "airflow-execution-api",
    "airflow-scheduler",
    "airflow-dag-processor",
    "airflow-triggerer",
)

# Whose port it is; those of receivers are given by the agent.
PORT_OWNERS: dict[str, str] = {
    "kafka-controller": "kafka",
    "receiver": "agent",
    "query-http": "query",
    "query-mysql": "query",
    "stream-load-body": "stream-load",
    "hbase-zookeeper": "hbase",
    "hbase-master": "hbase",
    "hbase-info": "hbase",
    "airflow": "airflow-api",
    "airflow-execution": "airflow-execution-api",
}

# Taken when they are free. Receivers count up from theirs; the agent gives each its own.
DEFAULT_PORTS: dict[str, int] = {
    "zookeeper": 2181,
    "kafka": 9092,
    "kafka-controller": 9093,
    "coordinator": 7070,
    "receiver": 7080,
    "query-http": 7090,
    "query-mysql": 7306,
    "agent": 7060,
    "stream-load": 7030,
    "stream-load-body": 7040,
    "storage": 7050,
    "mariadb": 3306,
    "hbase-zookeeper": 2182,
    "hbase-master": 16000,
    "hbase-info": 16010,
    "airflow": 8080,
    "airflow-execution": 8081,
}
