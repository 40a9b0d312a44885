"""Every name that can be chosen is implemented, and no other."""

from __future__ import annotations

from typing import get_args

import click

from lakewake.cli import app
from lakewake.embed.registry import PROVIDERS as EMBEDDERS
from lakewake.model.choices import (
    LOCAL_STORES,
    MODES,
    PROVIDERS,
    REMOTE_STORES,
    RERANKERS,
    ModeName,
)
from lakewake.rerank import RERANKERS as RERANKER_CLASSES
from lakewake.store.registry import STORES
from lakewake.verify.vectors import Vectors


def test_every_provider_has_an_embedder() -> None:
    # A vector column is chosen by `vector`, not by a provider's name.
    assert {*PROVIDERS, "column"} == EMBEDDERS.keys()


def test_every_reranker_is_implemented() -> None:
    assert set(RERANKERS) == RERANKER_CLASSES.keys()


def test_every_store_scheme_opens_a_store() -> None:
    # An index in memory lives in one process: no configuration can share it.
    assert {*LOCAL_STORES, *REMOTE_STORES, "memory"} == STORES.keys()


def test_the_type_of_a_mode_names_every_mode() -> None:
    assert get_args(ModeName) == MODES


def test_verify_offers_every_way_to_check_vectors() -> None:
    (option,) = (p for p in app.commands["verify"].params if p.name == "vectors")
    assert isinstance(option.type, click.Choice)
    assert list(option.type.choices) == [way.value for way in Vectors]
