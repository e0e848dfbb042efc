"""A Flower project whose strategy is a rule of Bristle."""
