"""Pure functions from the events of a race to numbers and sentences. Standard library only."""
