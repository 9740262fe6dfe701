"""Fetches the records of assigned partitions: positions, requests, sessions, and the tasks per broker."""
