"""Servers under load: the same prompts to one or two servers by 1 to 200 users at once, and what they wait.

    metrics.py    what the answers of a level say, geometric means, improvement, where two lanes cross
    data.py       prompts of a file
    users.py      users who ask their next question when the last is answered
    command.py    study
    table.py      what it prints

May import: every room below."""
