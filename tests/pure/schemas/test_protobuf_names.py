"""The message types of a Protobuf file: the same for its text and for its descriptor."""

from __future__ import annotations

import base64

import pytest

pytest.importorskip("google.protobuf")
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from aiokafka_lite.schemas.protobuf_names import message_types

TEXT = """
syntax = "proto3"; // message Comment {
package shop.orders;
/* message Other { } */
import "google/protobuf/timestamp.proto";
option java_package = "message X {";
enum Kind { NONE = 0; }
message Unused {}
message Orders {
  string message = 1 [json_name = "{"];
  oneof it { int32 a = 2; string b = 3; }
  map<string, int32> counts = 4;
  enum Inner { ZERO = 0; }
  message First { message Deep {} }
  extensions 100 to 199;
  message Order { reserved 2, 3; }
}
service Shop { rpc Buy(Orders) returns (Unused) { option deprecated = true; } }
extend Orders { optional int32 x = 100; }
message Last { }
"""


def test_types_are_found_in_the_order_of_the_text() -> None:
    types = message_types(TEXT)
    names = {
        (0,): "shop.orders.Unused",
        (1,): "shop.orders.Orders",
        (1, 0): "shop.orders.Orders.First",
        (1, 0, 0): "shop.orders.Orders.First.Deep",
        (1, 1): "shop.orders.Orders.Order",
        (2,): "shop.orders.Last",
    }
    for path, name in names.items():
        assert types.name_at(path) == name
        assert types.path_of(name) == list(path)
    for path in ((3,), (0, 0), (1, 2), (-1,)):
        with pytest.raises(ValueError, match="the schema of the record has no message type at"):
            types.name_at(path)
    with pytest.raises(ValueError, match=r"the schema has no message type shop\.orders\.Lost"):
        types.path_of("shop.orders.Lost")


def test_a_descriptor_in_base64_has_the_same_types() -> None:
    file = FileDescriptorProto(name="order.proto", package="shop")
    file.message_type.add(name="A")
    file.message_type.add(name="B").nested_type.add(name="C")
    types = message_types(base64.b64encode(file.SerializeToString()).decode())
    assert types.name_at([1, 0]) == "shop.B.C"
    assert types == message_types("package shop; message A {} message B { message C {} }")


def test_the_type_of_a_map_is_no_type_of_a_record() -> None:
    file = FileDescriptorProto(name="order.proto", package="shop")
    outer = file.message_type.add(name="A")
    outer.nested_type.add(name="CountsEntry").options.map_entry = True
    outer.nested_type.add(name="B")
    types = message_types(base64.b64encode(file.SerializeToString()).decode())
    assert types.name_at([0, 1]) == types.name_at([0, 0]) == "shop.A.B", "as it is, and normalized"
    assert types.path_of("shop.A.B") == [0, 1]
    with pytest.raises(ValueError, match="no message type at"):
        types.name_at([0, 2])


@pytest.mark.parametrize("text", ["", "}", "{", "message", "message {", "package", '"', "/*", "message A {" * 5000])
def test_damaged_text_has_the_types_before_the_damage(text: str) -> None:
    assert message_types(text).package == ""
