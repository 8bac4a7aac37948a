"""OpenAI-compatible servers as lanes: requests, and their streamed answers.

endpoint.py   a server as the operator names it, its requests, its secrets
reply.py      an answer: tokens, times, counts
client.py     one question to one server
steps.py      the steps of a lane, from the chunks and the server's own counts
lane.py       one lane: a thread, warmed up, then raced
race.py       a race of servers
mixed.py      a race of lanes on this machine and lanes on servers
verdict.py    whether a server wrote the same text as another lane
"""
