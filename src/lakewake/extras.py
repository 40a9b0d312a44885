"""Packages that come with an extra: what each is for, and how to install it."""

from __future__ import annotations

from lakewake.errors import SetupError

#: Module → what it is, and the extra that brings it.
EXTRAS = {
    "fastavro": ("fastavro, which reads a table's timeline,", "spark"),
    "fastembed": ("fastembed", "fastembed"),
    "hudi": ("the Hudi reader", "lake"),
    "obstore": ("obstore, which writes to S3,", "lake"),
    "onnxruntime": ("onnxruntime, which runs this model,", "onnx"),
    "py4j": ("PySpark", "spark"),
    "pyspark": ("PySpark", "spark"),
    "semantic_text_splitter": ("semantic-text-splitter, which cuts long texts,", "spark"),
    "tokenizers": ("tokenizers, which this model needs,", "onnx"),
}


def not_installed(error: ImportError) -> SetupError | None:
    """The error for a missing package of an extra; None if the error is about something else."""
    found = EXTRAS.get((error.name or "").partition(".")[0])
    if found is None or not isinstance(error, ModuleNotFoundError):
        return None
    return missing(*found)


def missing(what: str, extra: str) -> SetupError:
    """The error for something that an extra brings."""
    return SetupError(f"{what} is not installed", hint=f"pip install 'lakewake[{extra}]'")
