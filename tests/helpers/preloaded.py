"""Imported first by the process that pages are forked from: without collections it imports the rest a third faster."""

import gc

gc.disable()
