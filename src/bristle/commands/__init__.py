"""The commands behind the command line, from pre-training to the demo."""
