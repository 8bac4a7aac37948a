"""A loaded model as the loop's `Target`: prepared once (`prepare`), then one sequence's state (`target`) over shared
weights."""
