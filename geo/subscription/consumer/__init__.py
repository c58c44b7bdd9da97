"""Consuming a subscription. Users import `Subscription` from here."""

from geo.subscription.consumer.subscription import Subscription

__all__ = ["Subscription"]
