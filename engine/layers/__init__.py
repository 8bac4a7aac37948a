"""The arithmetic of a target, in torch: attention over static buffers, layers with fewer operations than transformers',
the gated delta rule."""
