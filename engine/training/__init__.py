"""Training of draft heads for a target, on text written by the target."""
