"""What a subscription has acknowledged: sets of messages, the records that carry them, and their fold."""
