"""Measurements of this project, each a command of its own."""
