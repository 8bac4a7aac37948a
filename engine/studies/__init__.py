"""Many races: one of each prompt of a file, or servers under load."""
