"""Delivery of traces to sinks: the outbox, the queue in front of a sink, checkpoints."""
