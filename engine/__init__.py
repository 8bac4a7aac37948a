"""Photofinish's engine: exact, fairly timed races between plain and speculative decoding. Importing it imports no
torch.

The way through it: `loading.load` -> `text.encode_prompt` -> `spec.RaceSpec` -> `session.TorchRace` ->
`events.LaneEvent`s, `metrics`, `recording`.
"""
