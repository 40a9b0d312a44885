"""The store contract for an index in the lake, on real Spark and Hudi."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakewake.store import Store
from lakewake.store.hudi.store import HudiStore
from lakewake.testing.stores import StoreContract
from support.lake_contract import LakeContract

pytestmark = pytest.mark.spark


class TestBriefly:
    """The heart of the contract; `make matrix` runs all of it."""

    @pytest.fixture
    def store(self, tmp_path: Path, spark: SparkSession) -> Store:
        folder = str(tmp_path / "index")
        return HudiStore(folder, "wines", lambda: spark, cell_chunks=4, ann_min_chunks=0)

    built = StoreContract.built
    small_parts = StoreContract.small_parts
    test_a_built_index = StoreContract.test_a_built_index_holds_exactly_its_batch
    test_a_commit = StoreContract.test_a_commit_upserts_deletes_and_moves_the_frontier
    test_a_rebuild = StoreContract.test_a_second_generation_replaces_the_first
    test_a_reader = StoreContract.test_a_reader_keeps_its_version_while_others_write
    test_builders = StoreContract.test_exactly_one_of_two_racing_builders_wins
    test_commits = (
        StoreContract.test_exactly_one_of_several_racing_commits_lands_and_no_id_is_stored_twice
    )
    test_an_older_frontier = (
        StoreContract.test_a_commit_that_expects_an_older_frontier_lands_nothing
    )
    test_as_of = StoreContract.test_earlier_versions_are_read_as_of_their_instant
    test_payload = StoreContract.test_payload_values_and_nulls_keep_their_types
    test_staged_writes = StoreContract.test_a_commit_holds_the_staged_writes_of_several_tasks
    test_metrics = StoreContract.test_search_ranks_by_the_metric_and_reports_the_cosine
    test_a_drop = StoreContract.test_a_dropped_index_is_gone_and_dropping_it_again_does_nothing
    test_a_build_during_a_drop = (
        StoreContract.test_a_build_during_a_drop_is_refused_and_leaves_nothing
    )
    test_language = StoreContract.test_a_language_compares_stems_and_leaves_out_its_stop_words
    test_answers = StoreContract.test_all_answers_equal_those_of_a_fresh_build_after_any_history


@pytest.mark.matrix
class TestHudi(LakeContract):
    """With cells of the usual size."""

    @pytest.fixture
    def store(self, tmp_path: Path, spark: SparkSession) -> Store:
        return HudiStore(str(tmp_path / "my index %20 #1 ü"), "wines", lambda: spark)


@pytest.mark.matrix
class TestCells(LakeContract):
    """The same with cells of a few chunks, which upkeep splits and dissolves."""

    #: As many cells as 6,000 chunks of a real index have would take minutes to write.
    many = 60

    @pytest.fixture
    def store(self, tmp_path: Path, spark: SparkSession) -> Store:
        folder = str(tmp_path / "index")
        return HudiStore(folder, "wines", lambda: spark, cell_chunks=4, ann_min_chunks=0)
