"""Training draft heads for a target, on text that it wrote itself."""
