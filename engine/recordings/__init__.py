"""Race files: written atomically, read as untrusted input, replayed. Standard library only."""
