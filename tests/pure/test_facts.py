"""A fact is what a frozen, slotted dataclass is."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from dataclasses import dataclass, field

import pytest

from aiokafka_lite.facts import fact


@fact
class Fact:
    """A fact."""

    place: str
    count: int = 1
    names: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Plain:
    """What it should be like."""

    place: str
    count: int = 1
    names: list[str] = field(default_factory=list)


@fact
class Nothing:
    """Without fields."""


@fact
class Other:
    """Has the same values."""

    place: str
    count: int = 1
    names: list[str] = field(default_factory=list)


@pytest.mark.parametrize("arguments", [("here",), ("here", 2), ("here", 2, ["x"])], ids=len)
def test_it_is_made_and_shown_as_a_dataclass_is(arguments: tuple[object, ...]) -> None:
    ours, plain = Fact(*arguments), Plain(*arguments)  # type: ignore[arg-type]
    assert dataclasses.asdict(ours) == dataclasses.asdict(plain)  # type: ignore[call-overload]
    assert repr(ours) == repr(plain).replace("Plain", "Fact")
    assert ours == Fact(*arguments)  # type: ignore[arg-type]


def test_what_cannot_be_made_is_refused_as_by_a_dataclass() -> None:
    for wrong in ({}, {"place": "x", "colour": "red"}):
        with pytest.raises(TypeError) as ours:
            Fact(**wrong)  # type: ignore[arg-type]
        with pytest.raises(TypeError) as plain:
            Plain(**wrong)  # type: ignore[arg-type]
        assert str(ours.value) == str(plain.value).replace("Plain", "Fact")


def test_it_cannot_be_changed() -> None:
    made = Fact("here")
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.count = 2  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        del made.count
    with pytest.raises(AttributeError):
        made.colour = "red"  # type: ignore[attr-defined]
    assert made.count == 1


def test_defaults_that_are_made_are_not_shared() -> None:
    Fact("here").names.append("x")
    assert Fact("there").names == []


def test_it_equals_its_own_kind_alone() -> None:
    assert Fact("here") != Other("here")
    assert Fact("here") != Plain("here")
    assert Fact("here") != Fact("here", 2)
    assert Nothing() == Nothing()


def test_equal_ones_have_one_hash_if_their_values_have_any() -> None:
    @fact
    class Key:
        left: int
        right: str

    assert {Key(1, "x"), Key(1, "x"), Key(2, "x")} == {Key(1, "x"), Key(2, "x")}
    with pytest.raises(TypeError, match="unhashable"):
        hash(Fact("here"))


def test_what_is_inherited_counts() -> None:
    @fact
    class Longer(Fact):
        colour: str = "red"

    assert repr(Longer("here", 2, ["x"], "blue")).endswith("Longer(place='here', count=2, names=['x'], colour='blue')")
    assert Longer("here") != Longer("there")
    assert Longer("here") != Fact("here")


def test_it_is_replaced_matched_copied_and_pickled() -> None:
    made = Fact("here", 3, ["x"])
    assert dataclasses.replace(made, count=4) == Fact("here", 4, ["x"])  # type: ignore[type-var]
    assert copy.deepcopy(made) == made
    assert pickle.loads(pickle.dumps(made)) == made
    match made:
        case Fact(place, count=3):
            assert place == "here"
        case _:
            pytest.fail("it does not match")
