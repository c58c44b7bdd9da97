"""Consuming a subscription. Users import `Subscription`, and `Subscriptions` for many topics, from here."""

from geo.subscription.consumer.many import Subscriptions
from geo.subscription.consumer.subscription import Subscription

__all__ = ["Subscription", "Subscriptions"]
