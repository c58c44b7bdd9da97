"""Version subscriptions: consumers that know only versions of a topic's log, and where they may go on in another cluster."""
