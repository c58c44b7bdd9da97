"""Subscriptions: what a consumer group has acknowledged, as a set of message ids that every cluster converges to."""
