"""Frozen backbones: load one, extract features, export a classifier, pre-train one of your own."""
