"""Visits a public page as many people at once: see `__main__.py`."""
