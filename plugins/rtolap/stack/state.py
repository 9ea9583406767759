"""The state of a stack that is kept between commands: `stack.json`, its names, and other versions' of it."""

from __future__ import annotations

import msgspec

from rtolap.base.errors import Refused
from rtolap.base.files import write_atomic
from rtolap.base.undecodable import decode_own
from rtolap.stack.layout import StackLayout

# In the order in which they are shown; `components` says what each of them is.
COMPONENT_NAMES = (
    "zookeeper",
    "kafka",
    "kafka-2",
    "kafka-3",
    "mariadb",
    "hbase",
    "coordinator",
    "stream-load",
    "storage",
    "agent",
    "spark",
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
    "kafka-2": 9094,
    "kafka-3": 9095,
    "coordinator": 7070,
    "receiver": 7080,
    "query-http": 7090,
    "query-mysql": 7306,
    "agent": 7060,
    "spark": 15002,
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


class StackState(msgspec.Struct, frozen=True):
    """The content of `stack.json`.

    Attributes:
        ports: by name.
        components: those that were started.
        settings: the `RTOLAP_*` variables.
    """

    ports: dict[str, int]
    components: tuple[str, ...]
    settings: dict[str, str]


def load_state(layout: StackLayout) -> StackState | None:
    try:
        encoded = layout.state_file.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    damage, action = f"{layout.state_file} cannot be read", "remove it when no stack runs"
    return decode_own(encoded, StackState, damage, action=action)


def save_state(layout: StackLayout, state: StackState) -> None:
    write_atomic(layout.state_file, msgspec.json.format(msgspec.json.encode(state), indent=2), mode=0o600)


def adapt(state: StackState) -> tuple[StackState, tuple[str, ...]]:
    """Return the state in this version's names, and what differed, in words: nothing where it has written it.

    Ports and parts that this version does not know are left out; a port that is not there gets its default.
    That is enough to stop such a stack (its other processes carry its mark) and to start over, but not to
    tell how its running parts are reached.
    """
    ports = {name: state.ports.get(name, default) for name, default in DEFAULT_PORTS.items()}
    components = tuple(name for name in COMPONENT_NAMES if name in state.components)
    differences = (
        *(f"no port {name}" for name in DEFAULT_PORTS if name not in state.ports),
        *(f"port {name}" for name in state.ports if name not in DEFAULT_PORTS),
        *(f"component {name}" for name in state.components if name not in COMPONENT_NAMES),
    )
    return msgspec.structs.replace(state, ports=ports, components=components), differences


def refuse_other_version(layout: StackLayout, differences: tuple[str, ...]) -> Refused:
    """Refuse what cannot be done with a stack whose ports and parts this version does not know."""
    return Refused(
        f"the stack in {layout.root} was started by another version of rtolap",
        expected=f"ports {', '.join(DEFAULT_PORTS)}",
        found=", ".join(differences),
        action="stop it: rtolap stack down; then start it again",
    )
