"""``python -m aiokafka_lite.cli`` is ``aiokafka-lite``."""

from . import main

main()
