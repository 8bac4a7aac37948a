"""Training draft heads for a target, on text that it continued itself."""
