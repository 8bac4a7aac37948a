"""Draft heads: small networks that draft from the target's own hidden states, in every format they are published in."""
