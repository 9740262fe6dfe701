"""``python -m aiokafka_lite`` is ``aiokafka-lite``."""

from .cli import main

main()
