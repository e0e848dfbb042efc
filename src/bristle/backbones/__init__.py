"""Frozen backbones: load one, extract features, keep heads, export a classifier.

`bristle.backbones.pretrain` trains one of your own, and needs torch.
"""

from bristle.backbones.backbone import CallableBackbone, OnnxBackbone, bundled, find_backbone
from bristle.backbones.base import Backbone
from bristle.backbones.derived import NoBackbone, RandomFeatures, WithBias
from bristle.backbones.export import export_classifier
from bristle.backbones.features import extract
from bristle.backbones.head import Head, load_head, save_head
from bristle.backbones.torch_module import TorchBackbone

__all__ = [
    "Backbone",
    "CallableBackbone",
    "Head",
    "NoBackbone",
    "OnnxBackbone",
    "RandomFeatures",
    "TorchBackbone",
    "WithBias",
    "bundled",
    "export_classifier",
    "extract",
    "find_backbone",
    "load_head",
    "save_head",
]
