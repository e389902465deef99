"""Detectors: the contract, and any Ultralytics detection model with its tracker."""

from hazardlens.detect.base import Detections, Detector

__all__ = ["Detections", "Detector"]
