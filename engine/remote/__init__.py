"""OpenAI-compatible servers as lanes: what is asked of them, and what they say, as it comes.

    endpoint.py   a server as the operator names it, and what is asked of it
    sse.py        server-sent events from bytes
    reply.py      an answer: tokens, times, counts
    client.py     one question to one server

May import: the files at the root of the engine, and httpx."""
