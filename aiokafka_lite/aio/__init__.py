"""Additions to asyncio for a client and a broker: lifetimes, frames, byte budgets, pipes, a virtual clock.

Nothing here knows Kafka's messages; ``framed_stream`` knows how they are framed, and that is all.
"""
