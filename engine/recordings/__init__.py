"""Race files: written whole, read with distrust, played again. Standard library only.

May import: the engine's root, measure.roofline."""
