"""Which device computes: decided without a card, and without importing torch."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from lakewake.config.settings import ModelSettings
from lakewake.embed import devices, lot_of
from lakewake.embed.devices import Installed, Runtime, choose_card, choose_runtime, task_addresses
from lakewake.embed.onnx import CARD_LOT, OnnxEmbedder
from lakewake.errors import ConfigError, SetupError

NOTHING = Installed(card=False, torch=False, cuda_provider=False)
TORCH = Installed(card=True, torch=True, cuda_provider=False)
ONNX = Installed(card=True, torch=False, cuda_provider=True)
BOTH = Installed(card=True, torch=True, cuda_provider=True)
CARD_ONLY = Installed(card=True, torch=False, cuda_provider=False)


@pytest.mark.parametrize(
    ("device", "has_weights", "here", "chosen"),
    [
        ("auto", True, NOTHING, None),
        ("auto", True, CARD_ONLY, None),
        ("auto", True, TORCH, Runtime.TORCH),
        ("auto", True, BOTH, Runtime.TORCH),
        ("auto", False, BOTH, Runtime.ONNXRUNTIME),
        ("auto", False, TORCH, None),
        ("auto", True, ONNX, Runtime.ONNXRUNTIME),
        ("cpu", True, BOTH, None),
        ("cuda:1", True, BOTH, Runtime.TORCH),
    ],
)
def test_the_runtime_is_the_fastest_that_is_installed(device, has_weights, here, chosen):
    assert choose_runtime(device, has_weights, here) is chosen


@pytest.mark.parametrize(
    ("here", "said"), [(NOTHING, "no NVIDIA card"), (CARD_ONLY, "nothing installed")]
)
def test_a_card_that_was_asked_for_and_cannot_be_used_is_an_error(here, said):
    with pytest.raises(SetupError, match=said) as caught:
        choose_runtime("cuda", True, here)
    assert "lakewake[gpu]" in caught.value.hint


@pytest.mark.parametrize(
    ("device", "addresses", "cards", "card"),
    [
        ("cuda", (), 2, 0),
        ("auto", ("1",), 2, 1),
        ("cuda:0", ("1",), 2, 0),
        ("auto", ("3",), 1, 0),
        ("auto", ("GPU-1f", "1"), 2, 1),
    ],
)
def test_a_task_uses_the_card_that_spark_gave_it(device, addresses, cards, card):
    assert choose_card(device, addresses, cards) == card


def test_outside_of_spark_there_are_no_addresses(monkeypatch):
    monkeypatch.delitem(sys.modules, "pyspark", raising=False)
    assert task_addresses() == ()
    no_task = SimpleNamespace(TaskContext=SimpleNamespace(get=lambda: None))
    monkeypatch.setitem(sys.modules, "pyspark", no_task)
    assert task_addresses() == ()


def test_the_addresses_of_a_task_are_those_of_its_resource(monkeypatch):
    task = SimpleNamespace(resources=lambda: {"gpu": SimpleNamespace(addresses=["2", "3"])})
    context = SimpleNamespace(get=lambda: task)
    monkeypatch.setitem(sys.modules, "pyspark", SimpleNamespace(TaskContext=context))
    assert task_addresses() == ("2", "3")


@pytest.mark.parametrize("device", ["gpu", "cuda:", "cuda:x", "CPU", "", "cuda:0\n"])
def test_another_device_is_refused(device):
    with pytest.raises(ConfigError, match="device"):
        OnnxEmbedder(ModelSettings(device=device))


def test_int8_is_not_computed_on_a_card(monkeypatch):
    monkeypatch.setattr(devices, "installed", lambda: BOTH)
    with pytest.raises(ConfigError, match="int8"):
        OnnxEmbedder(ModelSettings(precision="int8", device="cuda"))


def test_with_a_card_more_texts_are_embedded_at_once(monkeypatch):
    monkeypatch.setattr("lakewake.embed.onnx.installed", lambda: BOTH)
    assert lot_of(OnnxEmbedder(ModelSettings())) == CARD_LOT
    assert lot_of(OnnxEmbedder(ModelSettings(device="cpu"))) == 128
    assert lot_of(OnnxEmbedder(ModelSettings(precision="int8"))) == 128
