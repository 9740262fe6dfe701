"""Additions to asyncio for a client and a broker: lifetimes, frames, byte budgets, pipes, a virtual clock.

The package does not depend on Kafka's messages. Only ``framed_stream`` depends on their framing.
"""
