"""Values that a schema of Avro does not describe are refused, with the place. Unions take the type that fits."""

from __future__ import annotations

import array
import enum
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from aiokafka_lite.schemas.avro_names import resolved
from aiokafka_lite.schemas.avro_writing import writer


def write(schema: Any, data: Any) -> bytes:
    return writer(resolved(schema))(data)


def field(kind: Any, **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": "f", "type": kind, **more}]}


def refusal(schema: Any, data: Any) -> str:
    with pytest.raises(ValueError, match=r".+") as caught:
        write(schema, data)
    return str(caught.value)


ITEM = {"type": "record", "name": "Item", "fields": [{"name": "price", "type": "double"}]}
ORDER = {
    "type": "record",
    "name": "Message",
    "namespace": "shop",
    "fields": [
        {
            "name": "order",
            "type": {
                "type": "record",
                "name": "Order",
                "fields": [
                    {"name": "items", "type": {"type": "array", "items": ITEM}},
                    {"name": "counts", "type": ["null", {"type": "map", "values": "int"}], "default": None},
                ],
            },
        }
    ],
}


def test_the_error_names_the_place_of_a_wrong_value() -> None:
    data: Any = {"order": {"items": [{"price": 1.5}, {"price": 2.5}, {"price": "free"}]}}
    assert refusal(ORDER, data) == "order.items[2].price must be a number that a double of 64 bits can hold, got 'free'"
    data = {"order": {"items": [], "counts": {"tea": 1, "two coffees": 2.5}}}
    assert refusal(ORDER, data).startswith("order.counts['two coffees'] must be a whole number from -2147483648 to")
    assert refusal(ORDER, {"order": {"items": [{"price": 1, "prize": 2}]}}) == (
        "order.items[0].prize is not a field of shop.Item; did you mean 'price'?"
    )
    assert refusal(ORDER, {"order": {}}) == "order.items is missing, and the schema has no default for it"
    assert refusal('"int"'.strip('"'), "7").startswith("the data must be a whole number")


def test_a_misspelled_field_is_named_before_the_field_that_is_missing() -> None:
    assert refusal(field("int"), {"g": 1}) == "g is not a field of R"
    assert refusal(field("int"), {5: 1}).startswith("the data must be a dict with the fields of R, whose keys are of")


def test_a_missing_field_gets_its_default_or_null() -> None:
    assert write(field("int", default=5), {}) == b"\x0a"
    assert write(field("bytes", default="\u00ff"), {}) == b"\x02\xff"
    assert write(field(["string", "null"]), {}) == b"\x02"
    assert write(field(["null", "string"], default=None), {}) == b"\x00"
    assert write(field(["null", "string"], default="x"), {}) == b"\x02\x02x", "of any type since Avro 1.12"
    assert write(field(ITEM, default={"price": 1}), {}) == write(ITEM, {"price": 1})
    assert write(field({"type": "array", "items": "int"}, default=[1]), {}) == b"\x02\x02\x00"
    assert write(field({"type": "map", "values": "int"}, default={"a": 1}), {}) == b"\x02\x02a\x02\x00"
    assert write(field({"type": "long", "logicalType": "timestamp-millis"}, default=0), {}) == b"\x00"
    assert refusal(field("int", default="x"), {}).startswith("f is missing, and its default does not match the schema")


class Colour(enum.StrEnum):
    RED = "RED"


class Plain(enum.Enum):
    RED = "RED"


def test_a_member_of_an_enum_that_is_no_str_is_refused_with_advice() -> None:
    text = refusal({"type": "enum", "name": "E", "symbols": ["RED", "BLUE"]}, Plain.RED)
    assert text == "the data must be one of 'RED', 'BLUE', the symbols of E, got <Plain.RED: 'RED'>; pass its value"


def test_other_types_of_python_are_written_if_nothing_is_lost() -> None:
    assert write({"type": "array", "items": "int"}, (1,)) == write(
        {"type": "array", "items": "int"}, array.array("i", [1])
    )
    assert write("string", Colour.RED) == b"\x06RED"
    assert write({"type": "enum", "name": "E", "symbols": ["RED"]}, Colour.RED) == b"\x00"
    assert write("double", Fraction(1, 2)) == write("double", 0.5)
    assert "exactly, got Fraction(1, 3)" in refusal("double", Fraction(1, 3))
    assert (
        write(field("bytes"), {"f": memoryview(b"ab")}) == write(field("bytes"), {"f": bytearray(b"ab")}) == b"\x04ab"
    )
    assert "UTF-8" in refusal("string", "\ud800")
    assert "can hold" in refusal("double", 10**400)
    for wrong in ({1}, iter([1]), {"a": 1}, "abc", b"abc", None):
        assert refusal({"type": "array", "items": "int"}, wrong).startswith("the data must be a list, got ")
    assert refusal({"type": "map", "values": "int"}, {1: 1}).startswith("the data must be a dict with keys of type str")


def test_items_of_numpy_are_written() -> None:
    numpy = pytest.importorskip("numpy")
    items = {"type": "array", "items": "float"}
    assert write(items, numpy.array([0.5, 1.5], dtype="float32")) == write(items, [0.5, 1.5])
    assert write("long", numpy.int64(7)) == write("long", 7)
    assert write("double", numpy.float32(0.5)) == write("double", 0.5)


@dataclass
class Item:
    price: float


class Model:
    def model_dump(self) -> dict[str, Any]:
        return {"price": 1}


@pytest.mark.parametrize("schema", [ITEM, ["null", ITEM], ["null", "string", ITEM]])
def test_an_object_is_refused_with_the_way_to_convert_it(schema: Any) -> None:
    assert refusal(schema, Item(1.5)).endswith("; for a dataclass, pass to_dict=dataclasses.asdict to the serializer")
    assert "to_dict=lambda order: order.model_dump()" in refusal(schema, Model())
    assert refusal(schema, object()).endswith(">"), "no advice for an object without attributes"


def logical(kind: str, name: str, **more: Any) -> Any:
    return {"type": kind, "logicalType": name, **more}


def test_a_datetime_without_a_zone_is_refused_for_a_point_in_time() -> None:
    now = datetime(2026, 11, 28, 10, 11, 12)
    for unit in ("millis", "micros", "nanos"):
        point, local = logical("long", f"timestamp-{unit}"), logical("long", f"local-timestamp-{unit}")
        assert "must be a datetime with a time zone, such as datetime.now(timezone.utc), got" in refusal(point, now)
        assert "must be a datetime without a time zone" in refusal(local, now.replace(tzinfo=UTC))
        in_berlin = now.replace(tzinfo=timezone(timedelta(hours=1)))
        assert (
            write(point, in_berlin)
            == write(point, now.replace(hour=9, tzinfo=UTC))
            == write(local, now.replace(hour=9))
        )


def test_times_out_of_range_are_refused() -> None:
    assert "got datetime.time" in refusal(logical("int", "time-millis"), time(10, tzinfo=UTC))
    assert "a date that is not a datetime" in refusal(logical("int", "date"), datetime(2026, 11, 28))
    assert "a datetime, or" in refusal(logical("long", "timestamp-millis"), date(2026, 11, 28))
    for unit, largest in (("millis", 253402300799999), ("micros", 253402300799999999)):
        assert write(logical("long", f"timestamp-{unit}"), largest)
        assert refusal(logical("long", f"timestamp-{unit}"), largest + 1).startswith("the data must be a datetime, or ")
    assert "nanoseconds from" in refusal(logical("long", "timestamp-nanos"), datetime(2300, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize("value", ["NaN", "Infinity", "1E+999999", "1E-999999", "123.45", "0.001"])
def test_a_decimal_that_the_schema_cannot_hold_is_refused(value: str) -> None:
    assert "must be a Decimal of at most 4 digits, of which 2 are after the point" in refusal(
        field(logical("bytes", "decimal", precision=4, scale=2)), {"f": Decimal(value)}
    )


def test_a_decimal_is_refused_as_bytes_that_no_reader_can_convert() -> None:
    for data in (b"", b"\x7f\xff\xff"):
        assert "the bytes of its unscaled value" in refusal(
            field(logical("bytes", "decimal", precision=4, scale=2)), {"f": data}
        )


def test_a_logical_type_on_another_type_does_not_count() -> None:
    assert write(logical("string", "timestamp-millis"), "now") == b"\x06now"
    assert write(logical("long", "date"), 5) == b"\x0a"


A = {"type": "record", "name": "A", "fields": [{"name": "x", "type": "int"}]}
B = {
    "type": "record",
    "name": "B",
    "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": "int", "default": 0}],
}
SAME = {"type": "record", "name": "Same", "fields": [{"name": "x", "type": "int"}]}


def test_a_union_takes_the_type_that_keeps_the_value() -> None:
    assert write(["double", "long"], 5) == b"\x02\x0a", "a whole number stays one"
    assert write(["float", "double"], 0.1)[0] == 2, "no digits are lost"
    assert write(["int", "long"], 2**40)[0] == 2
    assert write(["int", "boolean"], True) == b"\x02\x01"
    assert write([logical("long", "timestamp-millis"), "int"], 5) == b"\x02\x0a", "a number is no point in time"
    assert (
        write(["null", logical("long", "timestamp-millis"), "string"], datetime(1970, 1, 1, tzinfo=UTC)) == b"\x02\x00"
    )
    assert "must be" in refusal(["int", "string"], 2**40)


def test_a_union_takes_the_number_type_that_is_exact() -> None:
    assert write(["float", "double"], 1 << 20)[0] == 0
    assert write(["float", "double"], (1 << 24) + 1)[0] == 2
    assert write(["float", "double"], Fraction(1, 1 << 40))[0] == 0
    assert "a number that a float of 32 bits can hold" in refusal(["float", "string"], (1 << 24) + 1)


def test_a_type_may_be_an_object_or_a_union_with_a_type_of_its_own() -> None:
    for kind in ({"type": {"type": "int"}}, {"type": {"type": {"type": "int"}}}):
        assert write(kind, 5) == write(field(kind), {"f": 5}) == b"\x0a"
        assert write({"type": "array", "items": kind}, [5]) == b"\x02\x0a\0"
    assert write({"type": ["null", {"type": {"type": "fixed", "name": "F", "size": 1}}, "int"]}, b"x") == b"\x02x"


def test_a_union_takes_the_record_whose_fields_the_dict_has() -> None:
    assert write([A, B], {"x": 1}) == b"\x00\x02", "nothing but A is complete"
    assert write([A, B], {"x": 1, "y": 2}) == b"\x02\x02\x04"
    assert write([A, B], ("B", {"x": 1})) == b"\x02\x02\x00"
    assert write([A, B], {"-type": "B", "x": 1}) == b"\x02\x02\x00"
    assert write(["null", A, {"type": "map", "values": "string"}], {"x": "1"}) == b"\x04\x02\x02x\x021\x00"


def test_a_dict_that_fits_two_types_of_a_union_has_to_name_its_type() -> None:
    assert (
        refusal([A, SAME], {"x": 1}) == "the data fits A and Same; pass a tuple with the name of the type: ('A', ...)"
    )
    assert write([A, SAME], ("Same", {"x": 1})) == b"\x02\x02"
    text = refusal(field([A, B]), {"f": {"x": "one"}})
    assert text.startswith("f fits no type of the union (A: x must be a whole number")
    assert "A: z is not a field of A" in refusal([A, B], {"x": 1, "z": 2})
    assert refusal(["null", A], {"x": "1"}).startswith("x must be a whole number"), "one type: its own error"


def test_a_union_with_a_type_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="a union has the type 'int' twice"):
        writer(resolved(["int", logical("int", "date")]))


def test_a_record_may_contain_itself_and_is_refused_if_it_does_so_too_deeply() -> None:
    node: Any = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}
    assert write(node, {"next": {"next": None}}) == b"\x02\x00"
    data: Any = {"next": None}
    data["next"] = data
    assert refusal(node, data) == "the data is nested too deeply"


def test_types_of_referenced_schemas_are_known_wherever_they_are_defined() -> None:
    country = {"type": "enum", "name": "Country", "symbols": ["DE", "FR"]}
    address = {"type": "record", "name": "com.acme.Address", "fields": [{"name": "country", "type": country}]}
    order = {
        "type": "record",
        "name": "com.acme.Order",
        "fields": [{"name": "origin", "type": "Country"}, {"name": "to", "type": ["null", "com.acme.Address"]}],
    }
    both = writer(resolved(order, [address]))
    assert both({"origin": "FR", "to": {"country": "DE"}}) == b"\x02\x02\x00"
    for other in ({"type": "array", "items": "com.acme.Address"}, ["null", "com.acme.Address"], "com.acme.Country"):
        assert writer(resolved(other, [address]))
    with pytest.raises(ValueError, match="the type 'Country' is not defined"):
        resolved({"type": "array", "items": "Country"}, [address])
    with pytest.raises(ValueError, match=r"the type 'com\.acme\.Country' is defined twice"):
        resolved({**country, "namespace": "com.acme", "symbols": ["X"]}, [address])
