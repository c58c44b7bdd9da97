"""The one who may write what, and for how long: owners, their signs of life and their clocks, the fence that stops a stale one."""
