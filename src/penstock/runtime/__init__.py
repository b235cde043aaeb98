"""What both hosts share: a flow from epoch to epoch, and an operator at work on one shard."""
