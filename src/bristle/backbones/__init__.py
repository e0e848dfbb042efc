"""Frozen backbones: load one, extract features, export a classifier.

`bristle.backbones.pretrain` trains one of your own, and needs torch.
"""

from bristle.backbones.backbone import Backbone, CallableBackbone, OnnxBackbone, bundled, find_backbone
from bristle.backbones.export import export_classifier
from bristle.backbones.features import extract

__all__ = [
    "Backbone",
    "CallableBackbone",
    "OnnxBackbone",
    "bundled",
    "export_classifier",
    "extract",
    "find_backbone",
]
