"""What an operator asks of a cluster, one function per API. So far: topics are made and taken away."""

from __future__ import annotations

from aiokafka_lite.admin.topics import create_topic, delete_topics

__all__ = ["create_topic", "delete_topics"]
