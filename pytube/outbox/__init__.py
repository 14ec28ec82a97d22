"""The outbox: messages written in a transaction of Postgres, delivered to Kafka in order per key."""
