"""A race in Python: one model, plain and speculative, and whether both wrote the same tokens.

python example.py "def fib(n):"
"""

import sys
from pathlib import Path

from engine import RaceSpec, SamplingParams, Step, TorchRace, encode_prompt, load, race_speedup, standard_lanes

text = sys.argv[1] if len(sys.argv) > 1 else Path("assets/prompts/csv_to_json.txt").read_text()
loaded = load()  # Gemma 3 270M; load("owner/name") takes any causal language model
prompt = encode_prompt(loaded.tokenizer, text, chat=False)
spec = RaceSpec(standard_lanes("ngram", k=7), SamplingParams(max_new_tokens=64), audit=True)
race = TorchRace(loaded, spec, prompt)  # probes exact widths and warms every lane

events = []
for each in race.events():
    events.append(each)
    step = each.event
    if each.lane == "speculative" and isinstance(step, Step):
        kept = f"{step.num_accepted} of {len(step.drafted)} guesses kept"
        print(f"{each.clock_s:6.3f} s  {kept:20} {''.join(step.pieces)!r}")

print(f"{race_speedup(events):.2f}x; {race.result()['verdicts']['speculative']['sentence']}")
