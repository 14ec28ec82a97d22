"""What elections, sinks and outboxes share of Kafka: clients, and what errors mean. It knows none of them."""
