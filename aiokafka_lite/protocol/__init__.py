"""Kafka's wire protocol, without I/O and without a clock.

- ``schema``: declare messages: fields, versions, features (``since``). ``messages/``: all messages.
- ``codec``: compile a message class and a version into an encoder and a decoder. ``encode_errors``: its error texts.
- ``framing``: a byte stream to frames. ``connection``: frames to messages, for clients and brokers.
- ``versions``: the versions that a broker supports. ``state``: state machines as tables.
- ``records/``: record batches, compression, columns. ``sasl/``: the mechanisms of a login.
"""
