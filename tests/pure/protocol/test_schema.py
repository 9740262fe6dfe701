"""Messages as Python objects: construction and comparison."""

from __future__ import annotations

import dataclasses

import pytest

from aiokafka_lite.protocol.schema import Response, array, int32, message, nested, string, struct


@struct
class Leader:
    node: int = int32(default=-1)


@struct
class Line:
    index: int = int32()
    text: str | None = string(nullable="0+", default=None)
    leader: Leader = nested(Leader, default=Leader())
    hosts: list[int] = array(int32, default=[])


@message(key=-1, versions=(0, 0))
class Empty(Response):
    """No fields."""


def test_an_omitted_field_has_its_default() -> None:
    assert Line(index=3) == Line(index=3, text=None, leader=Leader(node=-1), hosts=[])


def test_default_lists_and_structs_are_not_shared() -> None:
    first, second = Line(index=1), Line(index=2)
    first.hosts.append(9)
    first.leader.node = 4
    assert (second.hosts, second.leader.node) == ([], -1)


@pytest.mark.parametrize("first", [True, False], ids=["first message", "later message"])
def test_wrong_fields_are_refused_by_name(first: bool) -> None:
    @struct
    class Pair:
        left: int = int32()
        right: int = int32()

    if not first:
        Pair(left=1, right=2)
    with pytest.raises(TypeError, match=r"Pair\.__init__\(\) got an unexpected keyword argument 'middle'"):
        Pair(left=1, right=2, middle=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"Pair\.__init__\(\) missing 1 required keyword-only argument: 'right'"):
        Pair(left=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="positional"):
        Pair(1, 2)  # type: ignore[misc]


def test_a_message_may_have_no_fields() -> None:
    assert repr(Empty()) == "Empty()"
    assert Empty() == Empty()


def test_a_field_may_be_replaced() -> None:
    changed = dataclasses.replace(Line(index=1, hosts=[5]), index=2)
    assert changed == Line(index=2, hosts=[5])
    assert changed != Line(index=1, hosts=[5])
