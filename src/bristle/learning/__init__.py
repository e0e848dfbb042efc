"""Training and testing heads on the features of a frozen backbone."""
