"""The command line: `python -m engine`. Commands import what they need when they run."""
