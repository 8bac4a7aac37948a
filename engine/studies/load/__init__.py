"""Servers under load: the same prompts to one or two servers by 1 to 200 users at once, and how long they wait.

metrics.py    metrics of a level, geometric means, improvement, where two lanes cross
data.py       prompts of a file
users.py      users who ask their next question when the last is answered
study.py      every level of every lane
study_file.py a study in a file, to be resumed
counters.py   servers' own counters
"""
