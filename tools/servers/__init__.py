"""Real servers: their environments, what the product makes of them, and recordings of what they send."""
