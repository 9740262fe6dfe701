"""Tests of applications: fixtures for the embedded cluster and for Kafka in a container, and virtual time."""
