"""Servers that a demo or a test starts for itself: Postgres, Kafka and a mock of Kafka.

They listen on loopback only, on ports that were free, and end with the process that started them.
"""
