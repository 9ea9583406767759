"""A broker that trusts nobody: SASL_SSL on every listener, ACLs, users and certificates made on the spot.

The super user `admin` logs in with PLAIN, everybody else with SCRAM-SHA-512. Who has no ACL may do nothing.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import yaml
from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from rtolap.kafka.clusters import KafkaClusters
from rtolap.stack.artifacts import JavaArtifacts
from rtolap.stack.ports import free_port
from rtolap.stack.process import ManagedProcess
from rtolap.stack.servers.kafka import kafka_spec

from tests.support.certificates import Certificates, make_certificates

SUPER_USER = "admin"
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
_TIMEOUT_S = 15.0


class SecureKafka:
    """Use as a context manager. `passwords`: of every user, for tests that look where they must not stand."""

    def __init__(self, folder: Path, java: JavaArtifacts) -> None:
        folder.mkdir(mode=0o700, parents=True)
        self.folder = folder
        self.passwords: dict[str, str] = {}
        self.certificates = make_certificates(folder, "broker")
        self._new_password(SUPER_USER)
        port = free_port()
        controller_port = free_port({port})
        overrides = _security(folder, self.certificates, self.passwords[SUPER_USER], port, controller_port)
        spec = kafka_spec(java, folder / "kafka", port, controller_port, overrides=overrides)
        self.server = ManagedProcess(replace(spec, ready=lambda _: self._missing()))
        file = self.clusters_file(SUPER_USER, "super", mechanism="PLAIN")
        self.cluster = KafkaClusters.load("127.0.0.1:9", file).get("super")
        self._admin: AdminClient | None = None

    def __enter__(self) -> SecureKafka:
        self.server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.stop()

    @property
    def admin(self) -> AdminClient:
        """Return the super user."""
        if self._admin is None:
            self._admin = self.cluster.open(AdminClient, {})
        return self._admin

    def add_user(self, name: str) -> None:
        self._new_password(name)
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        credentials = UserScramCredentialUpsertion(name, info, self.passwords[name].encode())
        self.admin.alter_user_scram_credentials([credentials])[name].result(_TIMEOUT_S)

    def grant(self, user: str, topic: str, *operations: str) -> None:
        """Grant `operations`: Read, Write, Create, Describe."""
        bindings = [
            AclBinding(
                ResourceType.TOPIC,
                topic,
                ResourcePatternType.LITERAL,
                f"User:{user}",
                "*",
                AclOperation[operation.upper()],
                AclPermissionType.ALLOW,
            )
            for operation in operations
        ]
        for future in self.admin.create_acls(bindings).values():
            future.result(_TIMEOUT_S)

    def clusters_file(
        self,
        user: str,
        cluster: str,
        *,
        mechanism: str = "SCRAM-SHA-512",
        changes: Mapping[str, object] | None = None,
    ) -> Path:
        """Write the file by which a host's operator has `cluster` reached as `user`; None drops a setting."""
        settings = {
            "bootstrap.servers": self.server.address,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": {"file": str(self.folder / f"{user}.password")},
            "ssl.ca.location": str(self.certificates.authority),
            **(changes or {}),
        }
        kept = {name: value for name, value in settings.items() if value is not None}
        path = self.folder / f"{cluster}-{user}-{secrets.token_hex(4)}.yaml"
        path.write_text(yaml.safe_dump({"clusters": {cluster: kept}}))
        path.chmod(0o600)
        return path

    def _new_password(self, user: str) -> None:
        self.passwords[user] = secrets.token_urlsafe(24)
        path = self.folder / f"{user}.password"
        path.touch(mode=0o600)
        path.write_text(self.passwords[user])

    def _missing(self) -> str | None:
        """Return None once the broker lets the super user in, over TLS."""
        try:
            self.admin.describe_cluster(request_timeout=1.0).result(2.0)
        except (KafkaException, TimeoutError) as error:
            return f"broker on {self.server.address}: {error}"
        return None


def _security(
    folder: Path, certificates: Certificates, password: str, port: int, controller_port: int
) -> dict[str, object]:
    listeners = f"SASL_SSL://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}"
    chain = folder / "broker.pem"
    chain.touch(mode=0o600)
    chain.write_bytes(certificates.key.read_bytes() + certificates.certificate.read_bytes())
    login = f'{_PLAIN} username="{SUPER_USER}" password="{password}" user_{SUPER_USER}="{password}";'
    return {
        "listeners": listeners,
        "advertised.listeners": listeners,
        "listener.security.protocol.map": "SASL_SSL:SASL_SSL,CONTROLLER:SASL_SSL",
        "inter.broker.listener.name": "SASL_SSL",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.controller.plain.sasl.jaas.config": login,
        "listener.name.sasl_ssl.plain.sasl.jaas.config": login,
        "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": _SCRAM,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": chain,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": certificates.authority,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:{SUPER_USER}",
        "allow.everyone.if.no.acl.found": "false",
    }
