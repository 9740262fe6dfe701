"""The exceptions of the drop-in for aiokafka have the attributes and texts of aiokafka's exceptions."""

from __future__ import annotations

import inspect

import aiokafka.errors as theirs

from aiokafka_lite.compat.aiokafka import errors as ours


def test_each_exception_of_aiokafka_has_the_same_code_and_marks() -> None:
    classes = {name: cls for name, cls in vars(theirs).items() if inspect.isclass(cls)}
    of_brokers = [name for name, cls in classes.items() if issubclass(cls, theirs.BrokerResponseError)]
    assert len(of_brokers) > 60
    for name in of_brokers:
        if name != "BrokerResponseError":  # the base has no code
            assert getattr(ours, name).errno == classes[name].errno, name
    for name in (name for name, cls in classes.items() if issubclass(cls, theirs.KafkaError)):
        assert getattr(ours, name).retriable == classes[name].retriable, name
        assert getattr(ours, name).invalid_metadata == classes[name].invalid_metadata, name
