"""What a client concludes about the age of topics and partitions from metadata, which may be outdated."""

from __future__ import annotations

from aiokafka_lite.cluster.metadata import ClusterView, PartitionView, TopicView
from aiokafka_lite.cluster.topic_history import TopicHistory
from aiokafka_lite.cluster.topics import TrackedTopics
from aiokafka_lite.errors import ErrorCode
from aiokafka_lite.types import TopicPartition

ID, OTHER, NO_ID = b"1" * 16, b"2" * 16, bytes(16)


class Answers:
    """Metadata answers about one topic, a second apart."""

    def __init__(self) -> None:
        self.history = TopicHistory()
        self._tracked = TrackedTopics(300.0)
        self._tracked.add(["orders"])
        self._now = 0.0

    def topic(self, count: int, *, topic_id: bytes = ID, epoch: int = 0) -> Answers:
        partitions = tuple(PartitionView(number, 1, epoch) for number in range(count))
        return self._answer(TopicView("orders", topic_id, ErrorCode.NONE, partitions))

    def missing(self, error: ErrorCode = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) -> Answers:
        return self._answer(TopicView("orders", error=error))

    def _answer(self, topic: TopicView) -> Answers:
        self._now += 1.0
        view = ClusterView(topics={"orders": topic})  # type: ignore[arg-type]
        self.history.update(view, ["orders"], self._tracked, self._now)
        return self

    @property
    def new(self) -> list[int]:
        """The new ones of the first four partitions."""
        return [number for number in range(4) if self.history.is_new(TopicPartition("orders", number))]


def test_partitions_of_the_first_answer_are_old_and_later_ones_are_new() -> None:
    assert Answers().topic(2).topic(3).new == [2, 3]


def test_a_partition_is_new_before_metadata_has_it() -> None:
    assert Answers().topic(2).new == [2, 3], "the leader of a group may assign it earlier"


def test_without_an_answer_nothing_is_new() -> None:
    assert Answers().new == []


def test_a_topic_with_another_id_was_created_again() -> None:
    assert Answers().topic(2).topic(2, topic_id=OTHER).new == [0, 1, 2, 3]


def test_a_topic_that_is_missing_for_a_while_and_has_its_id_is_the_same() -> None:
    assert Answers().topic(2).missing().missing().missing().missing().topic(2).new == [2, 3]


def test_one_answer_without_a_topic_proves_nothing() -> None:
    assert Answers().missing().topic(2).new == [2, 3]


def test_two_answers_and_young_partitions_say_that_a_topic_is_new() -> None:
    assert Answers().missing().missing().topic(2).new == [0, 1, 2, 3]


def test_two_answers_at_once_say_nothing_about_a_topic_whose_leaders_have_changed() -> None:
    assert Answers().missing().missing().topic(2, epoch=5).new == [0, 1, 2, 3], "missing for two seconds"
    answers = Answers()
    answers.missing()
    answers._now -= 0.5
    answers.missing()
    answers._now -= 0.5
    assert answers.topic(2, epoch=5).new == [2, 3]


def test_a_refused_topic_is_not_a_missing_one() -> None:
    refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert Answers().missing(refused).missing(refused).missing(refused).missing(refused).topic(2).new == [2, 3]


def test_without_ids_a_topic_was_created_again_if_it_was_missing_for_some_seconds() -> None:
    assert Answers().topic(2, topic_id=NO_ID).missing().topic(2, topic_id=NO_ID).new == [2, 3]
    answers = Answers().topic(2, topic_id=NO_ID).missing().missing().missing()
    assert answers.topic(2, topic_id=NO_ID).new == [0, 1, 2, 3]


def test_a_topic_gets_its_id_during_an_upgrade() -> None:
    assert Answers().topic(2, topic_id=NO_ID).topic(2).topic(2, topic_id=NO_ID).topic(2).new == [2, 3]


def test_a_topic_is_new_if_two_lists_did_not_have_it() -> None:
    answers = Answers()
    answers.history.add_list(["others"])
    answers.history.add_list(["others"])
    answers.history.add_list(["others", "orders"])
    assert answers.topic(2, epoch=5).new == [0, 1, 2, 3]


def test_one_list_without_a_topic_proves_nothing() -> None:
    answers = Answers()
    answers.history.add_list([])
    answers.history.add_list(["orders"])
    answers.history.add_list(["orders"])
    assert answers.topic(2).new == [2, 3]
