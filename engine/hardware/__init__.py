"""The machine of a measurement: its description, the bytes of a step, and the device's bandwidth."""
