"""The view: a page that watches races. No torch here, no timing, no number that `engine.metrics` does not make."""
