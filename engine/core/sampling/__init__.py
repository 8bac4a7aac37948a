"""From a row of logits to a token: noise that belongs to a position, top-k and top-p, the sampler and acceptance rules.
Nothing here knows hardware: the sampler gets `DevicePicks`."""
