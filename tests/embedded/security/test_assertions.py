"""Assertions that replace a client secret (KIP-1258), and the tokens of Azure and AWS, from endpoints on loopback."""

from __future__ import annotations

import base64
import json
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from aiokafka_lite.admin import Admin
from aiokafka_lite.embedded import EmbeddedCluster, Security
from aiokafka_lite.errors import AuthenticationError, ConfigurationError, ConnectionLost
from aiokafka_lite.oauth import AwsSts, AzureManagedIdentity, ClientCredentials, SignedAssertion, TokenFromFile
from aiokafka_lite.settings.properties import client_settings

PASSWORD = "hunter2"
ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"


class Endpoint:
    """An HTTP server on loopback. It answers with ``status`` and ``answer``, and keeps the requests."""

    def __init__(self) -> None:
        self.status = 200
        self.answer: Any = {"access_token": "issued", "expires_in": 3600}
        self.requests: list[tuple[str, str, dict[str, str], dict[str, list[str]]]] = []
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                form = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
                headers = {name.lower(): value for name, value in self.headers.items()}
                endpoint.requests.append((self.command, parts.path, headers, parse_qs(form or parts.query)))
                self.send_response(endpoint.status)
                self.end_headers()
                answer = endpoint.answer
                self.wfile.write(answer.encode() if isinstance(answer, str) else json.dumps(answer).encode())

            def do_POST(self) -> None:
                self.do_GET()

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
    started.server.shutdown()
    thread.join()
    started.server.server_close()


RSA = rsa.generate_private_key(65537, 2048)
EC = ec.generate_private_key(ec.SECP256R1())


def write_key(path: Path, key: Any, password: str = "") -> Path:
    encryption = BestAvailableEncryption(password.encode()) if password else NoEncryption()
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption))
    return path


def decoded(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


def verify(token: str, key: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Check the signature as an identity provider does. Return header and claims."""
    signed, _, signature = token.rpartition(".")
    if isinstance(key, rsa.RSAPrivateKey):
        key.public_key().verify(decoded(signature), signed.encode(), padding.PKCS1v15(), SHA256())
    else:
        numbers = decoded(signature)
        assert len(numbers) == 64
        der = encode_dss_signature(int.from_bytes(numbers[:32], "big"), int.from_bytes(numbers[32:], "big"))
        key.public_key().verify(der, signed.encode(), ec.ECDSA(SHA256()))
    header, claims = (json.loads(decoded(part)) for part in signed.split("."))
    return header, claims


SECURITY = Security("SASL_PLAINTEXT", check_token=lambda token: {"sub": "orders"} if token == "issued" else {})


@pytest.mark.parametrize("algorithm, key", [("RS256", RSA), ("ES256", EC)])
async def test_a_client_authenticates_at_the_endpoint_with_a_signed_assertion(
    endpoint: Endpoint, algorithm: str, key: Any, tmp_path: Path
) -> None:
    path = write_key(tmp_path / "key.pem", key, PASSWORD)
    assertion = SignedAssertion(
        path, audience=endpoint.url, issuer="orders", algorithm=algorithm, key_password=PASSWORD, key_id="k1"
    )
    provider = ClientCredentials(endpoint.url, "orders", assertion=assertion, scope="kafka")
    async with EmbeddedCluster(brokers=1, security=SECURITY) as cluster:
        async with Admin(**cluster.client_settings() | {"sasl_oauth_token_provider": provider}) as admin:
            assert await admin.topics.list() == ()
        assert {connection.principal for connection in cluster.nodes[1].connections} <= {"User:orders"}
    (_, _, headers, form) = endpoint.requests[0]
    assert "authorization" not in headers
    token = form.pop("client_assertion")[0]
    assert form == {
        "grant_type": ["client_credentials"],
        "scope": ["kafka"],
        "client_id": ["orders"],
        "client_assertion_type": [ASSERTION_TYPE],
    }
    header, claims = verify(token, key)
    assert header == {"alg": algorithm, "typ": "JWT", "kid": "k1"}
    assert (claims["iss"], claims["sub"], claims["aud"]) == ("orders", "orders", endpoint.url)
    assert claims["exp"] - claims["iat"] == 300
    assert claims["nbf"] <= claims["iat"] <= time.time()
    with pytest.raises(InvalidSignature):
        verify(token, rsa.generate_private_key(65537, 2048) if key is RSA else ec.generate_private_key(ec.SECP256R1()))
    assert PASSWORD not in repr(assertion) + repr(provider)


def test_each_assertion_is_new_and_follows_a_replaced_key(tmp_path: Path) -> None:
    path = write_key(tmp_path / "key.pem", RSA)
    assertion = SignedAssertion(path, audience="idp", issuer="orders", subject="me", claims={"tenant": 7, "aud": "x"})
    first, second = (verify(assertion().encode().decode(), RSA)[1] for _ in range(2))
    assert first["jti"] != second["jti"]
    assert (first["sub"], first["tenant"], first["aud"]) == ("me", 7, "x")
    new = rsa.generate_private_key(65537, 2048)
    write_key(path, new)
    verify(assertion().encode().decode(), new)
    path.unlink()
    with pytest.raises(ConnectionLost, match=r"cannot read private_key_file=.*No such file"):
        assertion()


def test_an_assertion_in_a_file_is_read_for_each_token(endpoint: Endpoint, tmp_path: Path) -> None:
    path = tmp_path / "assertion"
    endpoint.answer = {"access_token": "issued"}
    provider = ClientCredentials(endpoint.url, "orders", assertion=TokenFromFile(path))
    for content in ("first", "second"):
        path.write_text(content)
        provider()
    assert [form["client_assertion"] for *_, form in endpoint.requests] == [["first"], ["second"]]


@pytest.mark.parametrize(
    "changes, says",
    [
        ({"private_key_file": 7}, "private_key_file must be the path of a PEM file, got int"),
        ({"private_key_file": "/no/such/file.pem"}, "cannot read private_key_file='/no/such/file.pem': No such file"),
        ({"key_password": None}, "private_key_file=.* requires key_password"),
        ({"key_password": "wrong-word"}, r"no valid private key in PEM form \(is key_password right\?\)"),
        ({"algorithm": "ES256"}, "must have a key of the curve P-256 for algorithm='ES256'"),
        ({"algorithm": "HS256"}, "algorithm must be one of RS256, ES256"),
        ({"audience": ""}, "audience must be a string that is not empty"),
        ({"issuer": None}, "issuer must be a string that is not empty"),
        ({"lifetime": 0}, "lifetime must be a number of seconds from 1 to 86400, got 0"),
        ({"claims": {"a": object()}}, "claims must be a dict that JSON can carry"),
    ],
)
def test_a_wrong_argument_of_an_assertion_is_named(changes: dict[str, Any], says: str, tmp_path: Path) -> None:
    path = write_key(tmp_path / "key.pem", RSA, PASSWORD)
    arguments = {"private_key_file": path, "audience": "idp", "issuer": "orders", "key_password": PASSWORD}
    with pytest.raises(ConfigurationError, match=says) as refusal:
        SignedAssertion(**{**arguments, **changes})
    assert PASSWORD not in str(refusal.value)
    assert "wrong-word" not in str(refusal.value)


@pytest.mark.parametrize(
    "arguments, says",
    [
        ({"client_secret": "x", "assertion": lambda: "x"}, "client_secret and assertion cannot be combined"),
        ({"assertion": "eyJhbGciOiJub25lIn0"}, "assertion must be a function that returns a JWT, got a string of 19"),
    ],
)
def test_a_wrong_assertion_is_refused_without_quoting_it(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says) as refusal:
        ClientCredentials("https://idp.example/token", "orders", **arguments)
    assert "eyJ" not in str(refusal.value)


def test_an_assertion_that_is_no_text_is_a_lost_connection(endpoint: Endpoint) -> None:
    provider = ClientCredentials(endpoint.url, "orders", assertion=lambda: 7)  # type: ignore[arg-type,return-value]
    with pytest.raises(ConnectionLost, match="assertion must return a str, got int"):
        provider()
    assert endpoint.requests == []


def test_properties_of_javas_client_make_an_assertion(endpoint: Endpoint, tmp_path: Path) -> None:
    path = write_key(tmp_path / "key.pem", EC, PASSWORD)
    properties = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": endpoint.url,
        "sasl.oauthbearer.client.credentials.client.id": "orders",
        "sasl.oauthbearer.assertion.private.key.file": str(path),
        "sasl.oauthbearer.assertion.private.key.passphrase": PASSWORD,
        "sasl.oauthbearer.assertion.algorithm": "ES256",
        "sasl.oauthbearer.assertion.claim.aud": "idp",
        "sasl.oauthbearer.assertion.claim.iss": "orders",
        "sasl.oauthbearer.assertion.claim.exp.seconds": "60",
    }
    provider: Any = client_settings(properties)["sasl_oauth_token_provider"]
    provider()
    _, claims = verify(endpoint.requests[0][3]["client_assertion"][0], EC)
    assert (claims["aud"], claims["exp"] - claims["iat"]) == ("idp", 60)
    for changes, says in (
        ({"sasl.oauthbearer.assertion.claim.exp.seconds": "soon"}, "exp.seconds must be a whole number of seconds"),
        ({"sasl.oauthbearer.assertion.file": "/x"}, "cannot be combined; remove one of them"),
    ):
        with pytest.raises(ConfigurationError, match=says):
            client_settings(properties | changes)
    del properties["sasl.oauthbearer.assertion.claim.iss"]
    with pytest.raises(ConfigurationError, match=r"^sasl.oauthbearer.assertion.claim.iss is required with"):
        client_settings(properties)


# Azure.


def test_a_managed_identity_of_a_virtual_machine_gets_a_token(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")  # which must not be asked
    endpoint.answer = {"access_token": "issued", "expires_in": "3600"}
    provider = AzureManagedIdentity("https://ns.servicebus.windows.net", client_id="c1", url=endpoint.url)
    assert provider().encode() == b"issued"
    provider()
    method, path, headers, query = endpoint.requests[0]
    assert (method, path, headers["metadata"]) == ("GET", "/token", "true")
    assert query == {
        "api-version": ["2018-02-01"],
        "resource": ["https://ns.servicebus.windows.net"],
        "client_id": ["c1"],
    }
    assert len(endpoint.requests) == 1, "Azure sends the lifetime as a string"


def test_a_managed_identity_of_app_service_gets_a_token(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IDENTITY_ENDPOINT", endpoint.url)
    monkeypatch.setenv("IDENTITY_HEADER", PASSWORD)
    endpoint.answer = {"access_token": "issued", "expires_on": str(int(time.time()) + 3600)}
    provider = AzureManagedIdentity("https://ns.servicebus.windows.net")
    assert [provider().encode() for _ in range(2)] == [b"issued"] * 2
    ((_, _, headers, query),) = endpoint.requests
    assert headers["x-identity-header"] == PASSWORD
    assert query["api-version"] == ["2019-08-01"]
    assert PASSWORD not in repr(provider)


def test_an_identity_that_does_not_exist_is_refused_and_a_busy_service_is_asked_again(endpoint: Endpoint) -> None:
    provider = AzureManagedIdentity("https://ns.servicebus.windows.net", url=endpoint.url)
    endpoint.status, endpoint.answer = 400, {"error": "invalid_request", "error_description": "Identity not found"}
    with pytest.raises(AuthenticationError, match="refused to issue a token: invalid_request: Identity not found"):
        provider()
    endpoint.status, endpoint.answer = 429, {}
    with pytest.raises(ConnectionLost, match="HTTP status 429"):
        provider()
    with pytest.raises(ConfigurationError, match="resource must be a string that is not empty"):
        AzureManagedIdentity("")
    with pytest.raises(ConfigurationError, match="url must be the https:// address"):
        AzureManagedIdentity("x", url="imds")


# AWS.

ISSUED = """<GetWebIdentityTokenResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><GetWebIdentityTokenResult>
<WebIdentityToken>issued</WebIdentityToken><Expiration>2999-01-01T00:00:00Z</Expiration>
</GetWebIdentityTokenResult></GetWebIdentityTokenResponse>"""


def refusal(code: str) -> str:
    return f"<ErrorResponse><Error><Type>Sender</Type><Code>{code}</Code><Message>no</Message></Error></ErrorResponse>"


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("botocore")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", PASSWORD)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.mark.usefixtures("aws")
async def test_sts_issues_a_token_for_an_audience(endpoint: Endpoint) -> None:
    endpoint.answer = ISSUED
    provider = AwsSts("eu-central-1", "https://kafka.example", endpoint_url=endpoint.url)
    async with (
        EmbeddedCluster(brokers=1, security=SECURITY) as cluster,
        Admin(**cluster.client_settings() | {"sasl_oauth_token_provider": provider}) as admin,
    ):
        assert await admin.topics.list() == ()
    _, _, headers, form = endpoint.requests[0]
    assert "AWS4-HMAC-SHA256 Credential=AKIAEXAMPLE/" in headers["authorization"]
    assert form["Action"] == ["GetWebIdentityToken"]
    assert (form["Audience.member.1"], form["SigningAlgorithm"]) == (["https://kafka.example"], ["ES384"])
    assert form["DurationSeconds"] == ["300"]


@pytest.mark.usefixtures("aws")
def test_a_refusal_of_sts_is_final_and_another_failure_is_not(endpoint: Endpoint) -> None:
    provider = AwsSts("eu-central-1", "kafka", endpoint_url=endpoint.url)
    endpoint.status, endpoint.answer = 403, refusal("AccessDenied")
    with pytest.raises(AuthenticationError, match=r"AWS STS refused to issue a token: .*AccessDenied"):
        provider()
    endpoint.status, endpoint.answer = 503, refusal("ServiceUnavailable")
    with pytest.raises(ConnectionLost, match="cannot get a token from AWS STS"):
        provider()
    endpoint.status, endpoint.answer = 200, "<GetWebIdentityTokenResponse/>"
    with pytest.raises(ConnectionLost, match="cannot get a token from AWS STS"):
        provider()
    endpoint.server.server_close()
    with pytest.raises(ConnectionLost, match="cannot get a token from AWS STS"):
        AwsSts("eu-central-1", "kafka", endpoint_url="http://127.0.0.1:1/token")()


@pytest.mark.usefixtures("aws")
def test_a_program_without_credentials_of_aws_is_refused(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/no/such/file")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/no/such/file")
    with pytest.raises(AuthenticationError, match="AWS's SDK finds no credentials"):
        AwsSts("eu-central-1", "kafka", endpoint_url=endpoint.url)()


@pytest.mark.usefixtures("aws")
@pytest.mark.parametrize(
    "arguments, options, says",
    [
        (("", "kafka"), {}, "region must be a string that is not empty"),
        (("eu", ""), {}, "audience must be a string that is not empty"),
        (("eu", "kafka"), {"signing_algorithm": "HS256"}, "signing_algorithm must be one of ES384, RS256"),
        (("eu", "kafka"), {"lifetime": 5}, "lifetime must be a whole number of seconds from 60 to 3600, got 5"),
        (("eu", "kafka"), {"endpoint_url": "sts"}, "url must be the https:// address"),
    ],
)
def test_a_wrong_argument_for_sts_is_named(arguments: Any, options: Any, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        AwsSts(*arguments, **options)


def test_tokens_of_sts_need_the_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [name for name in sys.modules if name.split(".")[0] == "botocore"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "botocore", None)  # as if it was not installed
    with pytest.raises(ConfigurationError, match=r"botocore.* is not installed; .*aiokafka_lite\[aws\]"):
        AwsSts("eu-central-1", "kafka")
