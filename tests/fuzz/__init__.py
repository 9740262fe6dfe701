"""Damaged input for every parser: ``make fuzz MINUTES=5``.

``inputs`` makes messages and record batches from their declarations and damages them. ``targets`` has the parsers and
the errors that they may raise. ``run`` passes the inputs to the parsers, with limits of time and memory. An input is
one ``bytes`` object. So its hexadecimal form, or the seed and the number of the input, reproduces a failure.
"""
