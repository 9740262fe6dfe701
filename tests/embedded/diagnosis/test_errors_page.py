"""docs/errors.md has the text of each error as the package raises it."""

from __future__ import annotations

import logging
from typing import Any

import make_errors
import pytest

from aiokafka_lite import errors
from aiokafka_lite.errors import KafkaError


@pytest.fixture(scope="module")
def page() -> str:
    text: str = make_errors.PAGE.read_text(encoding="utf-8")
    return text


@pytest.fixture(autouse=True)
def quiet() -> Any:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("case", make_errors.CASES, ids=lambda case: case.run.__name__)
def test_each_entry_has_the_text_of_the_raised_error(case: Any, page: str) -> None:
    error = make_errors.error_of(case)
    assert isinstance(error, KafkaError), "users see only errors of this package"
    assert make_errors.section(case, error) in page, "run: python docs/make_errors.py"


def test_the_page_has_only_these_entries(page: str) -> None:
    titles = [line.removeprefix("### ") for line in page.splitlines() if line.startswith("### ")]
    assert titles == [case.title for case in make_errors.CASES]
    assert page.startswith(make_errors.HEAD)


def test_every_error_class_has_an_entry(page: str) -> None:
    rarely = {
        "BrokerError",  # its subclasses, and codes without a class of their own
        "ConnectionLost",  # is tried again until it is a KafkaTimeout
        "WrongProtocol",
        "SchemaRegistryError",  # of a schema registry, not of a broker
    }
    classes = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, KafkaError) and value is not KafkaError
    }
    missing = {name for name in classes - rarely if f"\n{name}: " not in page}
    assert not missing
