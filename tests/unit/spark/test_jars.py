"""Which jars a session needs, and where they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakewake.errors import SetupError
from lakewake.spark.jars import (
    BUNDLE,
    S3_JARS,
    bundle_jar,
    jar_path,
    storage_jars,
    storage_options,
)

ON_S3 = ("lake/wines", "s3a://lake/wines")


def test_a_missing_bundle_names_the_setup_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKEWAKE_HOME", str(tmp_path))
    with pytest.raises(SetupError) as caught:
        bundle_jar()
    assert str(tmp_path) in caught.value.fact
    assert "lakewake setup" in caught.value.hint


def test_the_bundle_is_found_by_name_and_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKEWAKE_HOME", str(tmp_path))
    jar = tmp_path / "jars" / "hudi-spark3.5-bundle_2.12-1.2.0.jar"
    jar.parent.mkdir()
    jar.touch()
    assert bundle_jar() == jar
    assert BUNDLE.endswith(":hudi-spark3.5-bundle_2.12:1.2.0")


@pytest.fixture
def s3_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, ...]:
    """A Lakewake home with the jars of s3a:// in it."""
    monkeypatch.setenv("LAKEWAKE_HOME", str(tmp_path))
    jars = tuple(jar_path(coordinates) for coordinates in S3_JARS)
    jars[0].parent.mkdir()
    for jar in jars:
        jar.touch()
    return jars


@pytest.mark.usefixtures("s3_fetched")
def test_a_session_for_local_tables_gets_nothing_for_s3() -> None:
    assert storage_jars({}, ["lake/wines"], local=True) == ()
    assert storage_options(["lake/wines"]) == {}


def test_a_session_for_a_table_on_s3_gets_the_s3_jars(s3_fetched: tuple[Path, ...]) -> None:
    assert storage_jars({}, ON_S3, local=True) == s3_fetched
    assert storage_jars({}, ON_S3, local=False) == s3_fetched


@pytest.mark.usefixtures("s3_fetched")
def test_a_hadoop_aws_of_the_user_replaces_ours() -> None:
    own = {"spark.jars.packages": "org.apache.hadoop:hadoop-aws:3.3.6"}
    assert storage_jars(own, ON_S3, local=True) == ()


def test_missing_s3_jars_are_named_with_the_setup_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKEWAKE_HOME", str(tmp_path))
    with pytest.raises(SetupError) as caught:
        storage_jars({}, ON_S3, local=True)
    assert "org.apache.hadoop:hadoop-aws:3.3.4" in caught.value.fact
    assert "lakewake setup --s3" in caught.value.hint
    assert storage_jars({}, ON_S3, local=False) == ()
