"""Objects of a class as JSON: pydantic, msgspec and dataclasses."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import json
import typing
from typing import Any

import msgspec
import pydantic
import pytest

from aiokafka_lite import ConfigurationError, ModelDeserializer, ModelSerializer


class Size(enum.Enum):
    SMALL = "small"
    LARGE = "large"


class PydanticOrder(pydantic.BaseModel):
    id: int
    at: datetime.datetime


class StructOrder(msgspec.Struct):
    id: int
    at: datetime.datetime


@dataclasses.dataclass
class Order:
    id: int
    at: datetime.datetime


class OfNoLibrary:
    id: int


AT = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
each_class = pytest.mark.parametrize("model", [PydanticOrder, StructOrder, Order])


@each_class
def test_an_object_of_a_class_is_written_as_json_and_read_again(model: Any) -> None:
    data = ModelSerializer(model).serialize("orders", model(id=7, at=AT), [])
    assert json.loads(data)["id"] == 7
    assert ModelDeserializer(model).deserialize("orders", data, ()) == model(id=7, at=AT)


@each_class
def test_other_objects_and_other_data_are_refused(model: Any) -> None:
    with pytest.raises(TypeError, match=f"the type must be {model.__name__}"):
        ModelSerializer(model).serialize("orders", {"id": 7}, [])
    for data in (b'{"id": "x", "at": "2026-01-02T03:04:05Z"}', b'{"id": 7}', b'{"id": 7, "at": "now"}', b"[]", b"{"):
        with pytest.raises(ValueError):  # msgspec's and pydantic's errors are ValueErrors too
            ModelDeserializer(model).deserialize("orders", data, ())


@each_class
def test_an_object_with_a_field_of_another_type_is_refused(model: Any) -> None:
    order = model(id=7, at=AT)
    for wrong in ("seven", 19.99, [7], None):
        order.id = wrong
        with pytest.raises(ValueError, match=r"id|int"):
            ModelSerializer(model).serialize("orders", order, [])


class PydanticItem(pydantic.BaseModel):
    price: decimal.Decimal = decimal.Decimal(1)
    colors: list[str] = []
    size: Size = Size.LARGE
    note: str | None = None
    label: str = pydantic.Field("", serialization_alias="Label")


@pytest.mark.parametrize(
    "field, value, text, result",
    [
        ("price", 5, "5", decimal.Decimal(5)),
        ("colors", ("red",), ["red"], ["red"]),
        ("size", "large", "large", Size.LARGE),
        ("note", None, None, None),
    ],
)
def test_a_value_that_a_pydantic_model_takes_may_be_assigned(
    field: str, value: object, text: object, result: object
) -> None:
    item = PydanticItem()
    setattr(item, field, value)
    data = ModelSerializer(PydanticItem).serialize("items", item, [])
    assert json.loads(data)[field] == text
    assert getattr(ModelDeserializer(PydanticItem).deserialize("items", data, ()), field) == result


class Aliased(pydantic.BaseModel):
    order_id: int = pydantic.Field(alias="orderId")


class AliasedWithNote(Aliased):
    note: str


def test_a_pydantic_model_is_written_by_its_aliases_with_all_fields_of_its_class() -> None:
    order = AliasedWithNote(orderId=7, note="hot")
    data = ModelSerializer(Aliased).serialize("orders", order, [])
    assert json.loads(data) == {"orderId": 7, "note": "hot"}
    assert ModelDeserializer(AliasedWithNote).deserialize("orders", data, ()) == order


@dataclasses.dataclass
class Everything:
    weight: float
    orders: list[Order]
    counts: dict[str, int]
    extra: Any
    parent: Everything | None = None
    tags: list[str] = dataclasses.field(default_factory=list)


EVERYTHING = Everything(1.0, [Order(7, AT)], {"a": 1}, {"note": [None]})


def test_fields_of_a_dataclass_may_have_many_types() -> None:
    parent = dataclasses.replace(EVERYTHING, parent=EVERYTHING, tags=["hot"])
    data = ModelSerializer(Everything).serialize("orders", parent, [])
    assert ModelDeserializer(Everything).deserialize("orders", data, ()) == parent


@pytest.mark.parametrize(
    "change, text",
    [
        ({"weight": True}, "Everything.weight must be float, got bool"),
        ({"orders": {}}, "Everything.orders must be a list, got dict"),
        ({"orders": [{"id": 7}]}, "Everything.orders[0].at is missing"),
        ({"orders": [{"id": 7, "at": "now"}]}, "Everything.orders[0].at must be a string with a datetime, got 'now'"),
        ({"counts": {"a": None}}, "Everything.counts['a'] must be int, got NoneType"),
        ({"parent": 5}, "Everything.parent must be an object, got int"),
    ],
)
def test_a_wrong_field_is_named(change: dict[str, Any], text: str) -> None:
    data = json.loads(ModelSerializer(Everything).serialize("orders", EVERYTHING, []))
    with pytest.raises(ValueError) as caught:
        ModelDeserializer(Everything).deserialize("orders", json.dumps({**data, **change}).encode(), ())
    assert text in str(caught.value)


@pytest.mark.parametrize(
    "hint",
    [bytes, Size, tuple[int, str], dict[int, str], int | str, decimal.Decimal, typing.List, typing.Literal[[]]],  # noqa: UP006
)
def test_a_field_of_another_type_is_refused_at_once(hint: Any) -> None:
    model = dataclasses.make_dataclass("Odd", [("data", hint)])
    with pytest.raises(ConfigurationError, match=r"Odd\.data has the type .*use pydantic or msgspec"):
        ModelDeserializer(model)


def test_a_class_of_another_kind_is_refused_at_once() -> None:
    for wrong in (OfNoLibrary, dict, "Order", {"id": int}):
        with pytest.raises(ConfigurationError, match="model must be a pydantic model, a msgspec Struct"):
            ModelSerializer(wrong)


def test_another_type_needs_an_adapter() -> None:
    class Hexadecimal:
        def to_json(self, value: int) -> bytes:
            return b'"%x"' % value

        def from_json(self, data: bytes) -> int:
            return int(json.loads(data), 16)

    assert ModelSerializer(Hexadecimal()).serialize("t", 255, []) == b'"ff"'
    assert ModelDeserializer(Hexadecimal()).deserialize("t", b'"ff"', ()) == 255
