"""Where the built-in runtime computes: on this machine's processor, or on an NVIDIA card.

The vectors are those of the same model either way. So a card is used if it is there, and a small
call never waits for torch to be imported.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path

from lakewake.errors import ConfigError, SetupError
from lakewake.model.choices import DEVICE

#: Files that the driver of an NVIDIA card creates; the last one is that of Linux in Windows (WSL).
DRIVER_FILES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/proc/driver/nvidia/version", "/dev/dxg")
#: The name that Spark gives cards by default: `spark.task.resource.gpu.amount`.
RESOURCE = "gpu"
HINT = (
    "pip install 'lakewake[gpu]' on a machine with an NVIDIA card and its driver, or set "
    '`device = "cpu"`'
)


class Runtime(Enum):
    """What computes on a card."""

    TORCH = "torch"
    ONNXRUNTIME = "onnxruntime"


@dataclass(frozen=True)
class Installed:
    """What this machine has for computing on a card, found without importing torch."""

    card: bool
    torch: bool
    cuda_provider: bool


@cache
def installed() -> Installed:
    """What this machine has."""
    if not any(Path(file).exists() for file in DRIVER_FILES):
        return Installed(card=False, torch=False, cuda_provider=False)
    try:
        from onnxruntime import get_available_providers
    except ImportError:
        return Installed(card=True, torch=False, cuda_provider=False)
    return Installed(
        card=True,
        torch=importlib.util.find_spec("torch") is not None,
        cuda_provider="CUDAExecutionProvider" in get_available_providers(),
    )


def check_device(device: str) -> None:
    """Check a setting `device`.

    Raises:
        ConfigError: it is not one.
    """
    if not re.fullmatch(DEVICE, device):
        raise ConfigError(
            f"there is no device {device!r}", hint='use "auto", "cpu", "cuda", or a card: "cuda:1"'
        )


def choose_runtime(device: str, has_weights: bool, here: Installed) -> Runtime | None:
    """What computes on a card; None: the processor computes.

    Args:
        has_weights: the model is built from its weights, which torch needs. A ready ONNX file runs
            on onnxruntime only.

    Raises:
        SetupError: a card was asked for, and nothing here can use one.
    """
    if device == "cpu":
        return None
    if here.card and here.torch and has_weights:
        return Runtime.TORCH
    if here.card and here.cuda_provider:
        return Runtime.ONNXRUNTIME
    if device == "auto":
        return None
    missing = "there is no NVIDIA card" if not here.card else "nothing installed can use the card"
    raise SetupError(f"device {device!r} cannot be used: {missing}", hint=HINT)


def choose_card(device: str, addresses: tuple[str, ...], cards: int) -> int:
    """The number of the card to use.

    Args:
        addresses: the cards that Spark gave to the task, empty outside of Spark.
        cards: how many cards this process sees.
    """
    _, _, named = device.partition(":")
    if named:
        return int(named)
    given = next((int(a) for a in addresses if a.isdecimal()), 0)
    # A cluster manager that shows each process its own card only numbers it 0.
    return given if given < cards else 0


def task_addresses(name: str = RESOURCE) -> tuple[str, ...]:
    """The cards that Spark gave to the task that this process runs; outside of Spark, none."""
    pyspark = sys.modules.get("pyspark")
    task = pyspark.TaskContext.get() if pyspark else None
    if task is None:
        return ()
    resources: Mapping[str, object] = task.resources()
    return tuple(getattr(resources.get(name), "addresses", ()))
