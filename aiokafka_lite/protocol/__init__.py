"""The wire: bytes in, objects out. Nothing here does I/O or reads a clock."""
