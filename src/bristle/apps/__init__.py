"""Applications: what puts the rooms together, from pre-training to the demo."""
