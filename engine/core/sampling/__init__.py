"""From a row of logits to a token: noise that belongs to a position, top-k and top-p, the sampler and acceptance rules.
What depends on hardware is handed to the sampler (`DevicePicks`)."""
