"""Settings, which are frozen: an entry point reads them once from `RTOLAP_*` variables and passes them
down."""

from __future__ import annotations

import logging
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, ModelWrapValidatorHandler, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from rtolap.base.addresses import (
    Host,
    Port,
    Servers,
    Urls,
    callable_host,
    host_port,
    is_unspecified,
    without_credentials,
)
from rtolap.base.errors import DefinitionError
from rtolap.base.files import read_provided, shipped


class Settings(BaseSettings):
    """The settings with which every service finds the others. One variable a field: `RTOLAP_ZOOKEEPER`, …

    Secrets are files, never values on a command line: `token_file` holds the cluster's bearer token,
    `users_file` users (`name:sha256(sha256(password))[:rights]` in hex, one a line).
    """

    model_config = SettingsConfigDict(env_prefix="RTOLAP_", frozen=True, extra="ignore", allow_inf_nan=False)

    zookeeper: Servers = Field(
        default="127.0.0.1:2181", description="servers of ZooKeeper, comma-separated, as host:port"
    )
    zookeeper_root: str = Field(
        default="/rtolap", description="node below which the cluster stores its records"
    )
    zookeeper_password_file: Path | None = Field(
        default=None,
        description="password that protects the cluster's nodes; None: one derived from the token",
    )
    session_timeout_s: float = Field(
        default=6.0,
        gt=0,
        description="seconds after which a process that is silent at ZooKeeper counts as gone",
    )
    kafka: str = Field(default="127.0.0.1:9092", description="bootstrap servers of the cluster `default`")
    kafka_clusters: Path | None = Field(
        default=None, description="YAML file of Kafka clusters by name, with the settings of their clients"
    )
    schema_registry: str = Field(
        default="", description="base URLs of the schema registry `default`, comma-separated; empty: none"
    )
    schema_registries: Path | None = Field(
        default=None, description="YAML file of schema registries by name, with addresses and secrets"
    )
    fleet_sources: Path | None = Field(
        default=None, description="YAML file of the sources that monitoring of the Kafka brokers reads"
    )
    catch_up_behind_records: int = Field(
        default=100_000,
        ge=0,
        description="records behind the end from which a partition is read apart from the others; 0: never",
    )
    hbase: Servers = Field(
        default="127.0.0.1:2181/hbase",
        description="ZooKeeper of the HBase that subscriptions follow, and its node",
    )
    object_store: str = Field(
        default="file:///var/lib/rtolap/store", description="file://, s3:// or hdfs://, no secrets"
    )
    history_cache_dir: Path | None = Field(
        default=None, description="local folder of one query service for copies of history; None: no copies"
    )
    history_cache_bytes_max: int = Field(default=50 << 30, ge=1, description="bytes of all copies together")
    history_cache_copy_bytes_per_s: int = Field(
        default=50 << 20, ge=1, description="bytes a second that copying reads and writes"
    )
    history_spark: str = Field(
        default="",
        description="Spark Connect service that makes large reads of history, as sc://localhost:15002; "
        "empty: none, this process makes all",
    )
    history_spark_token_file: Path | None = Field(
        default=None, description="file with the token of that service; None: one derived from the cluster's"
    )
    history_spark_bytes_min: int = Field(
        default=1 << 30, ge=0, description="reads of fewer bytes of files are not made on Spark"
    )
    history_local_bytes_max: int = Field(
        default=0,
        ge=0,
        description="bytes of files that a statement may read in the query service itself; 0: any",
    )
    history_statement_bytes_max: int = Field(
        default=512 << 20,
        ge=1,
        description="bytes of partial rows of history that one statement merges in the memory of the query "
        "service; more go to query_spill_folder",
    )
    history_spark_port: Port = Field(
        default=15002, description="loopback port of the Spark service that this host runs"
    )
    data_dir: Path = Field(
        default=Path("/var/lib/rtolap"), description="folder of the files that services keep on their host"
    )
    host: Host = Field(default="127.0.0.1", description="address to bind to and to announce")
    announced_host: Host = Field(
        default="",
        description="address at which other machines reach the services of this host; empty: host",
    )
    machine: str = Field(
        default="",
        description="name of this machine, which fails as a whole; empty: its host name",
    )
    rack: str = Field(
        default="", description="what fails as a whole with other machines, as a zone; empty: not known"
    )
    placement: Literal["off", "warn", "strict", "strict_racks"] = Field(
        default="warn",
        description="receivers of a replica set on one machine, or all in one rack: off, nobody looks; "
        "warn, they are named; strict, one machine is refused; strict_racks, one rack, too",
    )
    replica_set_lost_after_s: float = Field(
        default=1800.0,
        ge=0,
        description="seconds without a living receiver before a replica set's partitions move to others; "
        "0: never",
    )
    coordinator_port: Port = Field(default=7070, description="HTTP port of the coordinator")
    coordinators: Urls = Field(
        default="",
        description="base URLs of all coordinators, comma-separated; empty: host and coordinator_port",
    )
    receiver_port: Port = Field(default=7080, description="Flight port of the receiver")
    query_http_port: Port = Field(default=7090, description="HTTP port of the query service")
    query_mysql_port: Port = Field(default=7306, description="MySQL port of the query service")
    query_tls_certificate: Path | None = Field(
        default=None, description="PEM chain of both SQL endpoints; with query_tls_key"
    )
    query_tls_key: Path | None = Field(default=None, description="PEM of the key of query_tls_certificate")
    query_statement_s_max: float = Field(
        default=3600.0, gt=0, description="seconds that a statement runs at most, whatever its client sets"
    )
    query_spill_folder: Path | None = Field(
        default=None, description="folder to which statements spill; None: spill in data_dir"
    )
    query_spill_free_bytes_min: int = Field(
        default=1 << 30, ge=0, description="bytes left free; below it the statement that spilled most ends"
    )
    query_log_folder: Path | None = Field(
        default=None, description="folder of the query log; None: keep it in data_dir"
    )
    query_log_bytes_max: int = Field(
        default=64 << 20, ge=0, description="bytes of the query log on the disk; 0: keep the newest in memory"
    )
    query_log_keep_s: float = Field(
        default=30 * 86_400.0, gt=0, description="seconds that statements stay in the query log"
    )
    query_log_texts: Literal["full", "without_values", "none"] = Field(
        default="full", description="how the query log keeps the texts of statements"
    )
    query_require_tls: bool = Field(default=False, description="refuse MySQL clients without TLS")
    query_ca: Path | None = Field(
        default=None, description="PEM of the authorities that SQL clients trust; None: the system's"
    )
    agent_port: Port = Field(default=7060, description="HTTP port of the agent of this host")
    agent_spark_warm_s: float = Field(
        default=0.0,
        ge=0,
        description="seconds for which a Spark driver waits for the next build; 0: each build has its own",
    )
    agent_cpus: str = Field(
        default="",
        description="processors by kind of process, as receiver=0-3,8; build=numa:1; others run anywhere",
    )
    stream_load_port: Port = Field(default=7030, description="port for requests of loads, which it redirects")
    stream_load_body_port: Port = Field(default=7040, description="port for the bodies of loads")
    stream_load_endpoints: Urls = Field(
        default="",
        description="base URLs of all front ends, comma-separated; empty: host and stream_load_port",
    )
    stream_load_redirect: Literal["none", "nodes"] = Field(
        default="none",
        description="where loads are redirected to: none, the front end's own port for bodies; nodes, the "
        "storage nodes with storage_body_port in turn",
    )
    stream_load_tls_certificate: Path | None = Field(
        default=None, description="PEM chain of both ports; with stream_load_tls_key"
    )
    stream_load_tls_key: Path | None = Field(
        default=None, description="PEM of the key of stream_load_tls_certificate"
    )
    stream_load_ca: Path | None = Field(
        default=None,
        description="PEM of the authorities that clients of front ends trust; None: the system's",
    )
    storage_port: Port = Field(default=7050, description="Flight port of this host's storage node")
    storage_node_lost_after_s: float = Field(
        default=1800.0, gt=0, description="seconds without a heartbeat before a storage node is replaced"
    )
    storage_body_port: Port | None = Field(
        default=None,
        description="port where this host's storage node takes bodies of loads; None: it takes none",
    )
    ledger: str = Field(
        default="sqlite:////var/lib/rtolap/stored/metastore.db",
        description="mysql://user@host:port/database or sqlite:///path, without a password",
    )
    ledger_password_file: Path | None = Field(
        default=None, description="file with the password of the ledger"
    )
    token_file: Path = Field(
        default=Path("/etc/rtolap/token"), description="file with the cluster's bearer token"
    )
    users_file: Path = Field(
        default=Path("/etc/rtolap/users"), description="file of the users of SQL and of loads"
    )
    http_head_timeout_s: float = Field(
        default=10.0, gt=0, description="seconds in which the head of a request has to come"
    )
    http_write_timeout_s: float = Field(
        default=60.0, gt=0, description="seconds after which a client that reads no answer is cut off"
    )
    http_body_grace_s: float = Field(
        default=120.0, gt=0, description="seconds that a body may stall before it needs 500 bytes a second"
    )
    http_connections_max: int = Field(
        default=1000, ge=1, description="connections of one service, over all its ports"
    )
    http_connections_per_address_max: int = Field(
        default=500, ge=1, description="connections of one service, from one address"
    )
    http_requests_max: int = Field(default=512, ge=1, description="requests at a time, of one service")
    http_requests_per_user_max: int = Field(
        default=384, ge=1, description="requests at a time, of one user of a service"
    )
    sep_frame_bytes_max: int = Field(
        default=256 << 20, ge=1, description="bytes of one call of a region server to a consumer"
    )
    sep_bytes_in_flight_max: int = Field(
        default=512 << 20, ge=1, description="bytes of all calls that a consumer reads or works on"
    )
    sep_connections_max: int = Field(
        default=1024, ge=1, description="connections of one consumer, over all its ports"
    )
    sep_connections_per_address_max: int = Field(
        default=512, ge=1, description="connections of one consumer, from one address"
    )
    sep_frame_grace_s: float = Field(
        default=15.0,
        gt=0,
        description="seconds after which a call has to come at the speed below, on average",
    )
    sep_frame_bytes_per_s_min: int = Field(
        default=256 << 10, ge=1, description="bytes a second of a call to a consumer"
    )
    sep_contended_grace_s: float = Field(
        default=2.0, gt=0, description="seconds after which a stalled call is dropped while others wait"
    )
    sep_entries_max: int = Field(default=200_000, ge=1, description="WAL entries of one call to a consumer")
    sep_cells_max: int = Field(default=2_000_000, ge=1, description="cells of one call to a consumer")
    sep_log_bounds: bool = Field(
        default=True,
        description="a consumer refuses edits that HBase's logs cannot hold; false: it takes them unchecked",
    )
    sep_clock_ahead_max_s: float = Field(
        default=3600.0, gt=0, description="seconds; edits whose write time is further ahead are refused"
    )
    flight_head_timeout_s: float = Field(
        default=10.0, gt=0, description="seconds in which a call with the token has to come"
    )
    flight_write_timeout_s: float = Field(
        default=60.0, gt=0, description="seconds after which a client that takes no answer is cut off"
    )
    flight_connections_max: int = Field(
        default=1000, ge=1, description="connections of one receiver or storage node"
    )
    flight_connections_per_address_max: int = Field(
        default=500, ge=1, description="connections of one receiver or node, from one address"
    )
    include_dir: Path = Field(default=Path("include"), description="folder of the definitions")
    host_list_folders: str = Field(
        default="",
        description="folders from which applications read host lists, comma-separated; empty: include_dir",
    )
    host_list_servers: str = Field(
        default="",
        description="servers from which they may fetch some, comma-separated, as host or host:port",
    )
    spark_jobs_dir: Path = Field(
        default_factory=lambda: shipped("spark_jobs"), description="folder of the jobs that builds submit"
    )
    spark_master: str = Field(default="local[2]", description="master of Spark that builds submit to")
    spark_host: str = Field(
        default="127.0.0.1",
        description="address of this host at which drivers of builds listen, and executors call them back; "
        "empty: as spark-defaults.conf says",
    )
    spark_allowed: Path | None = Field(
        default=None,
        description="YAML file of further settings and jars of Spark that builds may name on this host",
    )
    airflow_hosts: str = Field(
        default="",
        description="names under which Airflow's pages answer, comma-separated; empty: any",
    )
    log_level: str = Field(default="INFO", description="of the services, as Python names it")
    log_format: Literal["text", "json"] = Field(
        default="text", description="lines of the services' logs: for people, or a JSON object each"
    )

    @field_validator("log_level")
    @classmethod
    def _is_level(cls, name: str) -> str:
        if name.upper() not in logging.getLevelNamesMapping():
            raise ValueError("not one of DEBUG, INFO, WARNING, ERROR, CRITICAL")
        return name.upper()

    @model_validator(mode="wrap")
    @classmethod
    def _named(cls, values: Any, settings: ModelWrapValidatorHandler[Self]) -> Self:
        """Raise DefinitionError, which names the variables, in place of an error of pydantic."""
        try:
            return settings(values)
        except ValidationError as error:
            wrong = [_wrong(each) for each in error.errors()]
            raise DefinitionError(
                "a setting cannot be used" if len(wrong) == 1 else f"{len(wrong)} settings cannot be used",
                found="; ".join(wrong),
                action="docs/operations/settings.md lists what each takes",
            ) from None

    def coordinator_urls(self) -> tuple[str, ...]:
        """Return the URLs where clients look for the leader."""
        named = tuple(url.strip().rstrip("/") for url in self.coordinators.split(",") if url.strip())
        return named or (f"http://{host_port(self.called_at(), self.coordinator_port)}",)

    def agent_url(self) -> str:
        """Return the URL of this host's agent."""
        return f"http://{host_port(self.called_at(), self.agent_port)}"

    def query_url(self) -> str:
        """Return the HTTP endpoint for SQL: https where it has a certificate."""
        scheme = "http" if self.query_tls_certificate is None else "https"
        return f"{scheme}://{host_port(self.called_at(), self.query_http_port)}"

    def stream_load_urls(self) -> tuple[str, ...]:
        """Return the URLs of the endpoints that create tables and take loads; any of them will do."""
        named = tuple(url.strip().rstrip("/") for url in self.stream_load_endpoints.split(",") if url.strip())
        scheme = "http" if self.stream_load_tls_certificate is None else "https"
        return named or (f"{scheme}://{host_port(self.called_at(), self.stream_load_port)}",)

    def reached_at(self) -> str:
        """Return the host that a service of this host announces to those that shall find it.

        Raises DefinitionError for 0.0.0.0 and ::, where each machine would find itself.
        """
        host = self.announced_host or self.host
        if is_unspecified(host):
            raise DefinitionError(
                "no service is found at the address that it would announce",
                expected="an address of this host",
                found=host,
                action="set RTOLAP_ANNOUNCED_HOST to the address at which other machines reach this one",
            )
        return host

    def called_at(self) -> str:
        """Return the host at which clients on this machine call its services: where these listen at all
        addresses, the one that they announce, for which certificates are, or else a loopback address."""
        announced = self.announced_host
        is_told = is_unspecified(self.host) and announced and not is_unspecified(announced)
        return announced if is_told else callable_host(self.host)

    def named_at(self) -> str:
        """Return the host by which logs and lineage name a service of this host: its machine's name where it
        listens at all addresses and announces none."""
        host = self.announced_host or self.host
        return self.machine_name() if is_unspecified(host) else host

    def machine_name(self) -> str:
        """Return the name of the machine that this process runs on."""
        return self.machine or socket.gethostname()

    def token(self) -> str:
        """Return the cluster's bearer token."""
        action = "create it, or set RTOLAP_TOKEN_FILE"
        text = read_provided(self.token_file, "the cluster token", action=action).strip()
        if not text:
            raise DefinitionError("the cluster token is empty", found=str(self.token_file))
        return text


def _wrong(error: Mapping[str, Any]) -> str:
    variable = "_".join(("RTOLAP", *map(str, error["loc"]))).upper()
    given = without_credentials(str(error["input"]))
    return f"{variable}={given}: {error['msg'].removeprefix('Value error, ')}"
