"""``AIOKafkaClient`` has no counterpart: it sends messages of the protocol."""

from __future__ import annotations

from typing import NoReturn


class AIOKafkaClient:
    """Raises NotImplementedError."""

    def __init__(self, *_: object, **__: object) -> NoReturn:
        raise NotImplementedError(
            "AIOKafkaClient sends messages of the protocol; use AIOKafkaAdminClient, or aiokafka_lite.Admin"
        )
