"""Token providers of the client: an endpoint of an identity provider, a file, and Amazon MSK."""

from __future__ import annotations

import base64
import json
import math
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from aiokafka_lite.admin import Admin
from aiokafka_lite.embedded import EmbeddedCluster, Security
from aiokafka_lite.errors import AuthenticationError, ConfigurationError, ConnectionLost, KafkaTimeout
from aiokafka_lite.oauth import AwsMskIam, ClientCredentials, TokenFromFile
from aiokafka_lite.protocol.messages import SaslAuthenticateRequest
from aiokafka_lite.settings.properties import client_settings
from tests.waiting import LONGER_AND_LONGER


class Endpoint:
    """A token endpoint on loopback. It answers with ``status`` and ``answer``, and keeps the requests."""

    def __init__(self) -> None:
        self.status = 200
        self.answer: Any = {"access_token": "issued", "expires_in": 3600}
        self.headers: dict[str, str] = {}
        self.pause = 0.0  # seconds before each byte of the answer
        self.requests: list[tuple[str, dict[str, list[str]]]] = []
        endpoint, stopping = self, threading.Event()
        self.stopping = stopping

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                endpoint.requests.append((self.headers.get("Authorization", ""), form))
                self.send_response(endpoint.status)
                for name, value in endpoint.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                content = json.dumps(endpoint.answer).encode()
                with suppress(OSError):
                    for piece in map(bytes, zip(content)) if endpoint.pause else [content]:
                        stopping.wait(endpoint.pause)
                        self.wfile.write(piece)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/token"


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    started = Endpoint()
    thread = threading.Thread(target=started.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield started
    started.pause = 0.0
    started.stopping.set()
    started.server.shutdown()
    thread.join()
    started.server.server_close()


def check(token: str) -> dict[str, object]:
    if token != "issued":
        raise ValueError("unknown token")
    return {"sub": "orders"}


SECURITY = Security("SASL_PLAINTEXT", check_token=check)


async def test_a_client_logs_in_with_a_token_of_the_endpoint_and_uses_it_again(endpoint: Endpoint) -> None:
    provider = ClientCredentials(endpoint.url, "orders", "a secret/1", scope="kafka")
    async with EmbeddedCluster(brokers=2, security=SECURITY) as cluster:
        settings = cluster.client_settings() | {"sasl_oauth_token_provider": provider}
        for _ in range(2):
            async with Admin(**settings) as admin:
                await admin.topics.list()
        principals = {connection.principal for node in cluster.nodes.values() for connection in node.connections}
        assert principals <= {"User:orders"}
    basic = base64.b64encode(b"orders:a%20secret%2F1").decode()
    assert endpoint.requests == [(f"Basic {basic}", {"grant_type": ["client_credentials"], "scope": ["kafka"]})]
    assert "secret" not in repr(provider)


def test_a_token_without_a_lifetime_is_used_once(endpoint: Endpoint) -> None:
    endpoint.answer = {"access_token": "issued"}
    provider = ClientCredentials(endpoint.url, "orders", "secret")
    assert (provider().encode(), provider().encode()) == (b"issued", b"issued")
    assert len(endpoint.requests) == 2


@pytest.mark.parametrize("repeated", ["pass word/+1234", "pass%20word%2F%2B1234", "pass+word%2F%2B1234", "Basic"])
def test_the_error_of_an_endpoint_that_repeats_the_request_hides_the_secret(endpoint: Endpoint, repeated: str) -> None:
    login = base64.b64encode(b"billing-service:pass%20word%2F%2B1234").decode()
    text = f"bad request of billing-service: {login if repeated == 'Basic' else repeated}"
    endpoint.status, endpoint.answer = 400, {"error": "invalid_client", "error_description": text}
    with pytest.raises(AuthenticationError) as caught:
        ClientCredentials(endpoint.url, "billing-service", "pass word/+1234")()
    assert str(caught.value).endswith("invalid_client: bad request of billing-service: ***")


def test_the_error_of_an_endpoint_that_repeats_the_request_hides_the_assertion(endpoint: Endpoint) -> None:
    assertion = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhIn0.c2lnbmF0dXJl"
    endpoint.status, endpoint.answer = 503, {"error": f"cannot verify client_assertion={assertion}&scope=a"}
    with pytest.raises(ConnectionLost) as caught:
        ClientCredentials(endpoint.url, "billing", assertion=lambda: assertion)()
    assert str(caught.value).endswith("cannot verify client_assertion=***&scope=a")


async def test_refused_credentials_are_an_error_at_once(endpoint: Endpoint) -> None:
    endpoint.status, endpoint.answer = 401, {"error": "invalid_client", "error_description": "no such\nclient"}
    provider = ClientCredentials(endpoint.url, "orders", "secret")
    async with EmbeddedCluster(brokers=1, security=SECURITY) as cluster:
        admin = Admin(**cluster.client_settings() | {"sasl_oauth_token_provider": provider})
        with pytest.raises(AuthenticationError, match=r"refused to issue a token: invalid_client: no such.client"):
            await admin.start()
    assert len(endpoint.requests) == 1


async def test_an_endpoint_that_fails_is_asked_again_and_named_in_the_end(endpoint: Endpoint) -> None:
    endpoint.status = 503
    provider = ClientCredentials(endpoint.url, "orders", "secret")
    async with EmbeddedCluster(brokers=1, security=SECURITY) as cluster:
        settings = cluster.client_settings() | {"sasl_oauth_token_provider": provider}
        for timeout in LONGER_AND_LONGER:
            endpoint.requests.clear()
            with pytest.raises(KafkaTimeout) as caught:
                await Admin(**settings).start(timeout)
            if len(endpoint.requests) > 1:
                break
    assert caught.match("refused to issue a token: HTTP status 503")
    assert len(endpoint.requests) > 1


@pytest.mark.parametrize("answer", [[], {}, {"access_token": ""}, {"access_token": 7}])
def test_an_answer_without_a_token_is_named(endpoint: Endpoint, answer: Any) -> None:
    endpoint.answer = answer
    with pytest.raises(ConnectionLost, match="sent no access_token"):
        ClientCredentials(endpoint.url, "orders", "secret")()


@pytest.mark.parametrize("lifetime", [math.nan, math.inf, 10**400, -1, 1e300, "3600", [1]], ids=str)
def test_a_token_with_a_lifetime_that_makes_no_sense_is_used_once(endpoint: Endpoint, lifetime: Any) -> None:
    endpoint.answer = {"access_token": "issued", "expires_in": lifetime}
    provider = ClientCredentials(endpoint.url, "orders", "secret")
    assert (provider().encode(), provider().encode()) == (b"issued", b"issued")
    assert len(endpoint.requests) == 2


def test_an_endpoint_that_sends_one_byte_from_time_to_time_is_left_in_time(endpoint: Endpoint) -> None:
    endpoint.pause, endpoint.answer = 0.05, {"access_token": "x" * 1000}
    with pytest.raises(ConnectionLost, match=r"the answer did not end within 0\.2 s|timed out"):
        ClientCredentials(endpoint.url, "orders", "secret", timeout=0.2)()


def test_the_time_of_an_answer_begins_with_its_connection(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """An address that does not answer must not use up the time of the next one."""
    look_up = socket.getaddrinfo

    def slow(*arguments: Any) -> Any:
        for timer in threading.enumerate():
            if isinstance(timer, threading.Timer):
                timer.join()
        return look_up(*arguments)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    assert ClientCredentials(endpoint.url, "orders", "secret", timeout=5.0)().encode() == b"issued"


def test_an_answer_without_an_end_takes_little_memory(endpoint: Endpoint) -> None:
    endpoint.answer = "x" * (8 << 20)
    with pytest.raises(ConnectionLost, match="sent no access_token"):
        ClientCredentials(endpoint.url, "orders", "secret")()


def test_a_redirect_is_not_followed(endpoint: Endpoint) -> None:
    endpoint.status, endpoint.headers = 302, {"Location": endpoint.url + "/other"}
    with pytest.raises(AuthenticationError, match="HTTP status 302"):
        ClientCredentials(endpoint.url, "orders", "secret")()
    assert len(endpoint.requests) == 1


def test_an_endpoint_that_does_not_answer_is_named() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    url = f"http://127.0.0.1:{server.server_port}/token"
    server.server_close()
    with pytest.raises(
        ConnectionLost, match=rf"cannot get a token from http://127.0.0.1:{server.server_port}/…: .*refused"
    ):
        ClientCredentials(url, "orders", "secret")()


@pytest.mark.parametrize(
    "arguments, says",
    [
        (
            ("file:///etc/passwd", "id", "secret"),
            "url must be the https:// address of a token endpoint, got a string of",
        ),
        (("https://", "id", "secret"), "url must be the https:// address"),
        (("https://idp.example/token", "", "secret"), "client_id must be a string that is not empty"),
        (("https://idp.example/token", "id", None), "client_secret must be a string that is not empty"),
    ],
)
def test_a_wrong_argument_is_named(arguments: tuple[Any, ...], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        ClientCredentials(*arguments)


def test_properties_of_javas_client_make_a_provider(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLIENT_SECRET", "secret")
    prefix = "sasl.oauthbearer.client.credentials.client"
    properties = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": endpoint.url,
        f"{prefix}.id": "orders",
        f"{prefix}.secret": "env:CLIENT_SECRET",
        "sasl.oauthbearer.scope": "kafka",
    }
    provider: Any = client_settings(properties)["sasl_oauth_token_provider"]
    assert provider().encode() == b"issued"
    assert endpoint.requests[0][1]["scope"] == ["kafka"]
    del properties[f"{prefix}.secret"]
    with pytest.raises(ConfigurationError, match=rf"^{prefix}\.secret is required with sasl\.oauthbearer\.token\.end"):
        client_settings(properties)


# Files, extensions, Amazon MSK.


async def test_a_token_in_a_file_is_read_at_each_login(tmp_path: Path) -> None:
    path = tmp_path / "token"
    provider = TokenFromFile(path)
    for content in (None, " \n"):
        if content is not None:
            path.write_text(content)
        with pytest.raises(ConnectionLost, match=r"cannot read the token in|has no token"):
            provider()
    path.write_text("issued\n")
    async with EmbeddedCluster(brokers=1, security=SECURITY) as cluster:
        async with Admin(**cluster.client_settings() | {"sasl_oauth_token_provider": provider}) as admin:
            assert await admin.topics.list() == ()
        path.write_text("revoked\n")
        with pytest.raises(AuthenticationError, match="invalid_token"):
            await Admin(**cluster.client_settings() | {"sasl_oauth_token_provider": provider}).start()


async def test_extensions_are_sent_with_the_token() -> None:
    extensions = {"logicalCluster": "lkc-1", "identityPoolId": "pool 1"}
    async with EmbeddedCluster(brokers=1, security=SECURITY) as cluster:
        settings = cluster.client_settings() | {"sasl_oauth_token_provider": lambda: "issued"}
        async with Admin(**settings, sasl_oauth_extensions=extensions):
            sent = cluster.history.of(SaslAuthenticateRequest)[0].request.auth_bytes
    assert sent == b"n,,\x01auth=Bearer issued\x01logicalCluster=lkc-1\x01identityPoolId=pool 1\x01\x01"


@pytest.mark.parametrize("extensions", [{"auth": "x"}, {"a-b": "x"}, {"a": ""}, {"a": "\x01"}, {"a": 1}, ["a"], "a=b"])
def test_an_extension_that_no_message_can_carry_is_refused(extensions: Any) -> None:
    with pytest.raises(ConfigurationError, match="sasl_oauth_extensions must be a dict of names of letters"):
        Admin(
            "localhost:9092",
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="OAUTHBEARER",
            sasl_oauth_token_provider=lambda: "token",
            sasl_oauth_extensions=extensions,
        )


def test_tokens_for_amazon_msk_need_their_library(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("aws_msk_iam_sasl_signer", "aws_msk_iam_sasl_signer.MSKAuthTokenProvider"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", None)  # as if it was not installed
    with pytest.raises(ConfigurationError, match=r"aws_msk_iam_sasl_signer.* is not installed; .*aiokafka_lite\[aws\]"):
        AwsMskIam("eu-central-1")


async def test_a_token_for_amazon_msk_is_signed_by_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("aws_msk_iam_sasl_signer")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    signed: list[dict[str, list[str]]] = []

    def check(token: str) -> dict[str, object]:
        url = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode()
        signed.append({**parse_qs(urlsplit(url).query), "host": [urlsplit(url).netloc]})
        return {"sub": "role"}

    security = Security("SASL_PLAINTEXT", mechanisms=["OAUTHBEARER"], check_token=check)
    async with EmbeddedCluster(brokers=1, security=security) as cluster:
        settings = cluster.client_settings() | {"sasl_oauth_token_provider": AwsMskIam("eu-central-1")}
        async with Admin(**settings) as admin:
            await admin.cluster.describe()
    assert signed[0]["Action"] == ["kafka-cluster:Connect"]
    assert signed[0]["host"] == ["kafka.eu-central-1.amazonaws.com"]
    assert signed[0]["X-Amz-Credential"][0].startswith("AKIAEXAMPLE/")
