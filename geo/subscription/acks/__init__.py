"""Acknowledgements of subscriptions: sets of messages, the records that carry them, and their fold."""
