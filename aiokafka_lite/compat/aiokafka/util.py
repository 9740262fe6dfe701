"""The functions of ``aiokafka.util`` that other libraries call."""

from asyncio import create_task, get_running_loop

__all__ = ["create_task", "get_running_loop"]
