"""TLS on both endpoints with ordinary clients: verified, refused without where required, a wrong
authority.
"""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pymysql
import pytest
from rtolap.base.errors import QueryTimeout, Unauthorized, Unavailable
from rtolap.base.settings import Settings
from rtolap.protocols.query.client import QueryClient
from rtolap.query.mysql.server import MySqlLimits
from rtolap.servers.tls import load_context

from tests.support.certificates import Certificates, make_certificates
from tests.support.query.query_endpoints import PASSWORD, SLOW, TOKEN, USER, Endpoints, open_endpoints
from tests.support.query.query_world import QueryWorld
from tests.support.waiting import patience_s

pytestmark = pytest.mark.integration
LOGIN_S = 1.0


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def strangers(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("strangers"), "stranger")


@pytest.fixture(scope="module")
def offered(flights: QueryWorld, certificates: Certificates) -> Iterator[Endpoints]:
    context = load_context(certificates.certificate, certificates.key)
    with open_endpoints(flights, context=context) as opened:
        yield opened


@pytest.fixture(scope="module")
def required(flights: QueryWorld, certificates: Certificates) -> Iterator[Endpoints]:
    context = load_context(certificates.certificate, certificates.key)
    limits = MySqlLimits(login_timeout_s=LOGIN_S)
    with open_endpoints(flights, context=context, require_tls=True, limits=limits) as opened:
        yield opened


def verified(certificates: Certificates) -> dict[str, object]:
    return {"ca": str(certificates.authority), "check_hostname": True, "verify_mode": "required"}


def cipher_of(connection: pymysql.connections.Connection) -> str:
    with connection.cursor() as cursor:
        cursor.execute("SHOW STATUS LIKE 'Ssl_cipher'")
        return str(cursor.fetchall()[0][1])


def test_pymysql_verifies_the_certificate_and_asks(required: Endpoints, certificates: Certificates) -> None:
    with required.connect(ssl=verified(certificates)) as connection:
        assert cipher_of(connection)
        with connection.cursor() as cursor:
            cursor.execute("select count(*) from flights")
            assert cursor.fetchall() == ((400,),)
            cursor.execute("select repeat('x', 17000000) as t")
            assert len(cursor.fetchall()[0][0]) == 17_000_000
            cursor.execute("SHOW VARIABLES LIKE 'require_secure_transport'")
            assert cursor.fetchall() == (("require_secure_transport", "ON"),)


def test_a_client_refuses_a_certificate_of_another_authority(
    required: Endpoints, strangers: Certificates
) -> None:
    with pytest.raises(pymysql.err.OperationalError, match=r"(?i)certificate verify failed"):
        required.connect(ssl=verified(strangers))


def test_without_tls_one_is_refused_where_it_is_required(required: Endpoints) -> None:
    for password in (PASSWORD, "wrong"):  # the password has not been looked at
        with pytest.raises(pymysql.err.MySQLError, match="over TLS only") as caught:
            required.connect(password=password, ssl_disabled=True)
        assert caught.value.args[0] == 3159


def test_where_it_is_only_offered_both_ways_lead_in(offered: Endpoints, certificates: Certificates) -> None:
    with offered.connect(ssl=verified(certificates)) as inside, offered.connect(ssl_disabled=True) as plain:
        assert cipher_of(inside)
        assert cipher_of(plain) == ""


def test_a_wrong_password_is_told_over_tls_too(required: Endpoints, certificates: Certificates) -> None:
    with pytest.raises(pymysql.err.OperationalError, match="wrong password") as caught:
        required.connect(password="wrong", ssl=verified(certificates))
    assert caught.value.args[0] == 1045


def test_a_query_over_its_time_and_a_kill_end_it_over_tls(
    required: Endpoints, certificates: Certificates
) -> None:
    with (
        required.connect(ssl=verified(certificates)) as connection,
        required.connect(ssl=verified(certificates)) as killer,
    ):
        with connection.cursor() as cursor:
            cursor.execute("SET max_execution_time = 200")
            with pytest.raises(pymysql.err.MySQLError) as caught:
                cursor.execute(SLOW)
            assert caught.value.args[0] == 3024
        killer.cursor().execute(f"KILL {connection.thread_id()}")
        with pytest.raises(pymysql.err.MySQLError):
            connection.cursor().execute("select 1")
        assert cipher_of(killer)


def test_a_client_that_stops_in_the_midst_of_tls_is_dropped(required: Endpoints) -> None:
    with socket.create_connection(("127.0.0.1", required.mysql_port), timeout=20) as sock:
        greeting = sock.recv(4096)
        assert greeting
        capabilities = (1 << 9 | 1 << 11 | 1 << 15).to_bytes(4, "little")
        sock.sendall(b"\x20\0\0\1" + capabilities + bytes(28))  # asks for TLS, then says nothing
        assert sock.recv(4096) == b""


def command_line(endpoints: Endpoints, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    binary = shutil.which("mariadb") or shutil.which("mysql")
    if binary is None:
        pytest.skip("no mariadb or mysql command line: apt-get install mariadb-client")
    settings = folder / "client.cnf"
    settings.write_text(f'[client]\nuser={USER}\npassword="{PASSWORD}"\n')
    return subprocess.run(
        [
            *(binary, f"--defaults-file={settings}", "-h", "127.0.0.1", "-P", str(endpoints.mysql_port)),
            *(*options, "-B", "-N", "rtolap", "-e", "select count(*) from flights; show status like 'ssl%'"),
        ],
        capture_output=True,
        text=True,
        timeout=patience_s(60),
        check=False,
    )


def test_the_mariadb_command_line_speaks_tls(
    required: Endpoints, certificates: Certificates, strangers: Certificates, tmp_path: Path
) -> None:
    verify = "--ssl-verify-server-cert"
    done = command_line(required, tmp_path, "--ssl", f"--ssl-ca={certificates.authority}", verify)
    assert done.returncode == 0, done.stderr
    count, cipher = done.stdout.splitlines()
    assert count == "400"
    assert cipher.split("\t")[1]

    plain = command_line(required, tmp_path, "--skip-ssl")
    assert plain.returncode != 0
    assert "3159" in plain.stderr
    assert "over TLS only" in plain.stderr

    wrong = command_line(required, tmp_path, "--ssl", f"--ssl-ca={strangers.authority}", verify)
    assert wrong.returncode != 0
    assert "400" not in wrong.stdout


def test_http_over_tls(required: Endpoints, certificates: Certificates, strangers: Certificates) -> None:
    with QueryClient(required.http_url, token=TOKEN, ca_file=certificates.authority) as client:
        assert client.query("select count(*) from flights").rows == ((400,),)
        with pytest.raises(QueryTimeout):
            client.query(SLOW, timeout_ms=200)
    with (
        QueryClient(required.http_url, token="wrong", ca_file=certificates.authority) as client,
        pytest.raises(Unauthorized),
    ):
        client.query("select 1")
    with (
        QueryClient(required.http_url, token=TOKEN, ca_file=strangers.authority) as client,
        pytest.raises(Unavailable, match="certificate verify failed"),
    ):
        client.query("select 1")
    with (
        QueryClient(required.http_url.replace("https", "http"), token=TOKEN) as client,
        pytest.raises(Unavailable),
    ):
        client.query("select 1")


def test_clients_of_the_settings_call_what_the_certificate_is_for(
    required: Endpoints, certificates: Certificates
) -> None:
    """Also where the service listens at all addresses, as in a container."""
    listening = {"host": "0.0.0.0", "query_http_port": required.http_port}
    for announced in ("", "127.0.0.1"):
        settings = Settings(
            announced_host=announced, query_tls_certificate=certificates.certificate, **listening
        )
        with QueryClient(settings.query_url(), token=TOKEN, ca_file=certificates.authority) as client:
            assert client.query("select count(*) from flights").rows == ((400,),)


def test_nothing_older_than_tls_1_2_is_spoken(required: Endpoints, certificates: Certificates) -> None:
    context = ssl.create_default_context(cafile=certificates.authority)
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    with (
        socket.create_connection(("127.0.0.1", required.http_port), timeout=20) as sock,
        pytest.raises(ssl.SSLError),
    ):
        context.wrap_socket(sock, server_hostname="127.0.0.1")
