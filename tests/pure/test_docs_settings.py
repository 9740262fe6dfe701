"""docs/settings.md is up to date, and every setting has a description."""

from __future__ import annotations

import inspect
import sys
from dataclasses import fields

import list_settings
import pytest

from aiokafka_lite import Admin, Consumer, ConsumerGroup, Producer, ShareConsumer
from aiokafka_lite.settings import config
from aiokafka_lite.share import config as share_config

CONFIGURATIONS = [configuration for configuration, _, _ in list_settings.CONFIGURATIONS]
each_configuration = pytest.mark.parametrize(
    "configuration", CONFIGURATIONS, ids=lambda configuration: configuration.__name__
)


def test_the_page_is_what_the_configurations_say() -> None:
    assert list_settings.PAGE.read_text(encoding="utf-8") == list_settings.page(), "run: python docs/list_settings.py"


@pytest.mark.parametrize("settings", list_settings.HOVERED, ids=lambda settings: settings.__name__)
def test_an_editor_shows_the_description_and_the_default_of_each_keyword_argument(settings: type) -> None:
    source = list_settings.source_of(settings).read_text(encoding="utf-8")
    assert source == list_settings.with_docstrings(settings), "run: python docs/list_settings.py"
    described = list_settings.docstrings(settings)
    inherited = set() if settings is config.ClientSettings else set(config.ClientSettings.__annotations__)
    assert set(described) == set(settings.__annotations__) - inherited
    assert all(" Default: " in text for text in described.values())


def test_every_configuration_is_on_the_page() -> None:
    classes = {
        value
        for module in (config, share_config)
        for name, value in vars(module).items()
        if name.endswith("Config") and isinstance(value, type)
    }
    assert classes == set(CONFIGURATIONS)


@each_configuration
def test_every_setting_has_a_docstring_that_is_a_sentence(configuration: type) -> None:
    said = list_settings.docstrings(configuration)
    assert [field.name for field in fields(configuration) if not said.get(field.name, "").endswith(".")] == []


def test_every_setting_has_its_line_in_the_table_of_javas_defaults() -> None:
    settings = {field.name for configuration in CONFIGURATIONS for field in fields(configuration)}
    assert settings == set(list_settings.JAVA), "the table JAVA in docs/list_settings.py"


@pytest.mark.parametrize(
    "name, value, printed",
    [
        ("linger", 0.0, "0 s"),
        ("reconnect_backoff", 0.05, "50 ms"),
        ("batch_size", 64 * 1024, "64 KiB"),
        ("fetch_min_bytes", 1, "1 byte"),
        ("max_in_flight_requests_per_connection", 5, "5"),
        ("auto_commit", True, "on"),
        ("client_rack", "", "empty"),
    ],
)
def test_defaults_are_printed_with_their_units(name: str, value: object, printed: str) -> None:
    assert list_settings.shown(name, value) == printed


@pytest.mark.parametrize("client", [Admin, Consumer, ConsumerGroup, Producer, ShareConsumer])
def test_every_setting_of_a_constructor_is_described(client: type) -> None:
    """docs/show_settings.py writes them into the signatures of the reference."""
    annotation = inspect.signature(client).parameters["settings"].annotation
    accepted = getattr(sys.modules[client.__module__], annotation.removeprefix("Unpack[").removesuffix("]"))
    described = {field.name for configuration in CONFIGURATIONS for field in fields(configuration)}
    assert set(accepted.__annotations__) - described == set()
