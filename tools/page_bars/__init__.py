"""Measures the page in a real browser: see `__main__.py`."""
