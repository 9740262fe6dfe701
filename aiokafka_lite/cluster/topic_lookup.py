"""Waits for the metadata of one topic, with an error at the deadline that names the reason."""

from __future__ import annotations

import asyncio

from ..aio.deadline import deadline
from ..errors import BrokerError, ErrorCode, KafkaError, KafkaTimeout, UnknownTopic, error_for
from .metadata import TopicView
from .updater import Updater


async def wait_for_topic(updater: Updater, name: str, timeout: float) -> TopicView:
    """Wait until the topic exists and has no error, for at most ``timeout`` seconds.

    A topic that does not exist may appear soon: it was just created, or this request creates it. So the client asks
    again until the deadline, as Java's client does, and then raises UnknownTopic or KafkaTimeout. AuthorizationError
    and other errors that are not retriable are raised at the first answer.
    """
    try:
        with deadline(timeout, lambda: f"topic {name!r}: no metadata within {timeout:g} s"):
            return await _ask_until_usable(updater, name)
    except KafkaTimeout as error:
        updater.tracked.forget_use(name)
        raise _explained(updater, name, timeout, error) from None
    except BrokerError:
        updater.tracked.forget_use(name)
        raise


async def _ask_until_usable(updater: Updater, name: str) -> TopicView:
    while True:
        updater.tracked.use(name, asyncio.get_running_loop().time())
        await updater.wait_served(updater.demand([name]))
        topic = updater.view.topics.get(name)
        if topic is None or topic.error.retriable:
            continue
        if topic.is_usable:
            return topic
        if topic.error is not ErrorCode.NONE:
            raise error_for(topic.error, f"topic {name!r} cannot be used", topic=name)


def _explained(updater: Updater, name: str, timeout: float, error: KafkaTimeout) -> KafkaError:
    topic = updater.view.topics.get(name)
    if updater.was_left_out(name) and not updater.failures:
        return KafkaTimeout(f"{error}: brokers responded, but their responses omitted this topic")
    if topic is None or updater.failures:
        causes = updater.describe_failures()
        return KafkaTimeout(f"{error}: {causes}" if causes else str(error))
    if topic.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        creation = "" if updater.creates_topics else ", and allow_auto_create_topics is off"
        what = f"topic {name!r} did not appear within {timeout:g} s{creation}; check its name, or create it"
        return UnknownTopic(topic.error, what, topic=name)
    return KafkaTimeout(f"{error}; the last answer was {topic.error.name} ({topic.error.description})")
