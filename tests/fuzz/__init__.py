"""Damaged input for every parser: ``make fuzz MINUTES=5``.

``inputs`` makes messages and record batches from their declarations and damages them, ``targets`` are the parsers and
what they may raise, and ``run`` feeds one to the other within bounds of time and memory. An input is one ``bytes``
object, so that a failure is reproduced from its hexadecimal form, or from the seed and the number of the input.
"""
