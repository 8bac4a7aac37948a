"""The command line: `python -m engine`. Commands import what they need on use.

May import: everything."""
