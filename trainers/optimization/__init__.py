"""From losses to a step of the weights."""
