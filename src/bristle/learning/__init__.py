"""Training and testing heads on the features of a frozen backbone."""

from bristle.learning.baselines import accuracy_on, train_alone, train_oracle
from bristle.learning.metrics import (
    Evaluation,
    accuracy,
    f1_scores,
    log_likelihood_loss,
    predict,
    samples_per_class,
)
from bristle.learning.optimiser import HeadState, TrainingSettings
from bristle.learning.samples import Samples, SampleStore
from bristle.learning.training import full_step, mean_shift, train, train_step

__all__ = [
    "Evaluation",
    "HeadState",
    "SampleStore",
    "Samples",
    "TrainingSettings",
    "accuracy",
    "accuracy_on",
    "f1_scores",
    "full_step",
    "log_likelihood_loss",
    "mean_shift",
    "predict",
    "samples_per_class",
    "train",
    "train_alone",
    "train_oracle",
    "train_step",
]
