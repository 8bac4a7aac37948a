"""Why speculation is not faster with this target and drafter, and the one thing to change first."""
