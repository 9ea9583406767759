"""Secrets of a stack: made once, stored in files that only their owner reads."""

from __future__ import annotations

import base64
import json
import secrets

from rtolap.base.files import write_atomic
from rtolap.base.users import password_hash
from rtolap.stack.layout import StackLayout
from rtolap.stack.ports import HOST

SQL_USER = "rtolap"
AIRFLOW_USER = "admin"
AIRFLOW_PASSWORD, AIRFLOW_PASSWORDS = "airflow-password", "airflow-passwords.json"
ZOOKEEPER_PASSWORD = "zookeeper-password"


def ensure_secrets(layout: StackLayout) -> None:
    """Make the missing secrets. The files that servers and curl read are made from the passwords, so a
    password that was changed by hand takes effect when `users`, `netrc` or `airflow-passwords.json` was
    deleted."""
    layout.secrets.mkdir(parents=True, exist_ok=True)
    layout.secrets.chmod(0o700)
    _ensure(layout, "token", secrets.token_urlsafe(32))
    _ensure(layout, "sql-password", secrets.token_urlsafe(18))
    _ensure(layout, ZOOKEEPER_PASSWORD, secrets.token_urlsafe(32))
    _ensure(layout, "mariadb-password", secrets.token_urlsafe(18))
    _ensure(layout, "airflow-jwt", secrets.token_hex(64))  # Airflow asks for at least 64 bytes
    _ensure(layout, "airflow-api", secrets.token_hex(32))
    _ensure(layout, "airflow-fernet", base64.urlsafe_b64encode(secrets.token_bytes(32)).decode())
    _ensure(layout, AIRFLOW_PASSWORD, secrets.token_urlsafe(18))
    _ensure(layout, AIRFLOW_PASSWORDS, json.dumps({AIRFLOW_USER: read_secret(layout, AIRFLOW_PASSWORD)}))
    password = read_secret(layout, "sql-password")
    _ensure(layout, "users", f"{SQL_USER}:{password_hash(password)}:define")
    _ensure(layout, "netrc", f"machine {HOST} login {SQL_USER} password {password}")


def read_secret(layout: StackLayout, name: str) -> str:
    return layout.secret(name).read_text().strip()


def _ensure(layout: StackLayout, name: str, value: str) -> None:
    path = layout.secret(name)
    if not path.exists():
        write_atomic(path, value.encode() + b"\n", mode=0o600)
