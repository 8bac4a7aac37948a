"""The view: a page that watches races. No torch and no timing here; every number shown comes from engine.analysis."""
