"""docs/settings.md is up to date, and every setting has a description."""

from __future__ import annotations

import inspect
from dataclasses import fields
from typing import get_args

import list_settings
import pytest

from aiokafka_lite import Admin, Consumer, ConsumerGroup, Producer, ShareConsumer
from aiokafka_lite.settings import client, consumer, group, java, keywords, producer, share
from aiokafka_lite.types import Compression, CompressionName

CONFIGURATIONS = [configuration for configuration, _, _ in list_settings.CONFIGURATIONS]
each_configuration = pytest.mark.parametrize(
    "configuration", CONFIGURATIONS, ids=[kind.__name__ for kind in CONFIGURATIONS]
)


def test_the_page_is_what_the_configurations_say() -> None:
    assert list_settings.PAGE.read_text(encoding="utf-8") == list_settings.page(), "run: python docs/list_settings.py"


def test_the_keyword_arguments_are_the_fields_of_the_configurations() -> None:
    """A setting without a keyword argument would be refused by users' type checkers, and the other way round."""
    source = list_settings.KEYWORDS.read_text(encoding="utf-8")
    assert source == list_settings.keywords(), "run: python docs/list_settings.py"
    constructors = (keywords.ProducerSettings, keywords.ConsumerSettings, keywords.ShareConsumerSettings)
    names = {name for constructor in constructors for name in constructor.__annotations__}
    assert names | set(list_settings.ARGUMENTS) == {
        field.name for configuration in CONFIGURATIONS for field in fields(configuration)
    }


def test_every_configuration_is_on_the_page() -> None:
    defined = {
        value
        for module in (client, producer, consumer, group, share)
        for name, value in vars(module).items()
        if name.endswith("Config") and isinstance(value, type)
    }
    assert defined == set(CONFIGURATIONS)


def test_every_codec_has_a_name_for_type_checkers() -> None:
    assert get_args(CompressionName) == tuple(codec.name.lower() for codec in Compression)


@each_configuration
def test_every_setting_has_a_docstring_that_is_a_sentence(configuration: type) -> None:
    docstrings = list_settings.docstrings(configuration)
    assert [field.name for field in fields(configuration) if not docstrings.get(field.name, "").endswith(".")] == []


@each_configuration
def test_every_setting_names_its_counterpart_in_javas_client(configuration: type) -> None:
    missing = [
        field.name
        for field in fields(configuration)
        if len(list_settings.notes(configuration, field.name, java.Java)) != 1
    ]
    assert missing == [], "annotate the field with Java(name), or with Java(None)"


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


@pytest.mark.parametrize("constructor", [Admin, Consumer, ConsumerGroup, Producer, ShareConsumer])
def test_every_setting_of_a_constructor_is_described(constructor: type) -> None:
    """The reference leads to the tables of the page Settings, instead of describing them itself."""
    annotation = inspect.signature(constructor).parameters["settings"].annotation
    accepted = getattr(keywords, annotation.removeprefix("Unpack[").removesuffix("]"))
    described = {field.name for configuration in CONFIGURATIONS for field in fields(configuration)}
    assert set(accepted.__annotations__) - described == set()
