"""A released model for other programs: scikit-learn, safetensors, ONNX."""

from eigenveil.export.formats import FORMATS, ExportFormat

__all__ = ["FORMATS", "ExportFormat"]
