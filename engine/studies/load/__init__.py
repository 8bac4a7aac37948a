"""Servers under load: the same prompts to one or two servers by 1 to 200 users at once, and how long they wait."""
