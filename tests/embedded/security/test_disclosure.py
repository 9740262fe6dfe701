"""A canary in the place of a secret, in calls that reach a broker: no error, result or log line has it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from aiokafka_lite import Admin, EmbeddedCluster, KafkaError, Producer
from aiokafka_lite.admin import ConfigChange, ConfigResource
from aiokafka_lite.embedded import Security
from aiokafka_lite.oauth import ClientCredentials, TokenFromFile
from tests.pure.test_disclosure import CANARY, PARTS, SHAPES, everything_of

BROKER = ConfigResource.broker(1)
CALLS: dict[str, Callable[[Admin, Any], Any]] = {
    "passwords": lambda admin, value: admin.users.set_passwords(value),
    "a password": lambda admin, value: admin.users.set_passwords({"bob": value}),
    "a password by position": lambda admin, value: admin.users.set_passwords("bob", value),
    "a mechanism": lambda admin, value: admin.users.set_passwords({"bob": "x"}, mechanism=value),
    "changes": lambda admin, value: admin.configs.alter(value),
    "changes of a resource": lambda admin, value: admin.configs.alter({BROKER: value}),
    "a setting": lambda admin, value: admin.configs.alter({BROKER: {"ssl.key.password": value}}),
    "a list of changes": lambda admin, value: admin.configs.alter({BROKER: [("ssl.key.password", value)]}),
    "a change": lambda admin, value: admin.configs.alter({BROKER: [ConfigChange("ssl.key.password", value)]}),
}


@pytest.mark.parametrize("name", CALLS)
async def test_no_call_of_the_admin_client_quotes_what_may_be_a_secret(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    leaks = []
    async with EmbeddedCluster(1) as cluster, Admin(cluster.bootstrap_servers) as admin:
        for shape, value in SHAPES.items():
            if shape == "a key of a dict" and name in ("passwords", "changes"):
                continue  # the keys are users and resources, which are printed
            try:
                texts = [repr(await CALLS[name](admin, value))]
            except Exception as error:  # noqa: BLE001 - which error it is, is said by the tests of the calls
                texts = list(everything_of(error))
            leaks += [text for text in texts if any(part in text for part in PARTS)]
    assert leaks == []
    assert not any(part in caplog.text for part in PARTS)


def raising(token: str) -> dict[str, object]:
    raise ValueError(f"bad token {token}")


@pytest.mark.parametrize(
    "provider",
    [
        lambda: CANARY,
        TokenFromFile(CANARY),
        ClientCredentials(f"http://127.0.0.1:1/token?client_secret={CANARY}", "id", CANARY, timeout=0.5),
    ],
)
async def test_neither_side_of_a_refused_login_shows_the_token(
    provider: Callable[[], str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    security = Security("SASL_PLAINTEXT", mechanisms=["OAUTHBEARER"], check_token=raising)
    settings: dict[str, Any] = {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": provider}
    async with EmbeddedCluster(1, security=security) as cluster:
        producer = Producer(cluster.bootstrap_servers, security_protocol="SASL_PLAINTEXT", api_timeout=0.5, **settings)
        with pytest.raises(KafkaError) as caught:
            await producer.start()
    texts = [*everything_of(caught.value), repr(producer), repr(producer.diagnose()), repr(producer.health())]
    texts.append(caplog.text)
    assert not [text for text in texts if any(part in text for part in PARTS)]
