"""Sources that a publisher reads: files of JSON lines and Kafka topics."""
