"""Which options a session gets, decided without starting one."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from lakewake.spark.files import Files
from lakewake.spark.options import EXTENSION, HUDI_OPTIONS, is_local, session_options

FILES = Files(Path("/scratch"), Path("/jars/bundle.jar"), Path("/jvm/key.jsa"))


def options(given: dict[str, str] | None = None, files: Files = FILES, verbose: bool = False):
    return session_options(given or {}, files, verbose=verbose)


def java_options(given: dict[str, str] | None = None, files: Files = FILES, verbose: bool = False):
    return shlex.split(options(given, files, verbose)["spark.driver.extraJavaOptions"])


@pytest.mark.parametrize(
    ("master", "local"),
    [
        ("local", True),
        ("local[*]", True),
        ("local[2,4]", True),
        ("local-cluster[2,1,1024]", False),
        ("spark://localhost:7077", False),
        ("yarn", False),
    ],
)
def test_only_a_master_inside_this_jvm_is_local(master: str, local: bool) -> None:
    assert is_local(master) is local


def test_hudis_four_settings_are_in_every_session() -> None:
    for master in ("local[2]", "yarn"):
        assert HUDI_OPTIONS.items() <= options({"spark.master": master}).items()


def test_settings_of_the_user_win_over_ours() -> None:
    given = {"spark.driver.memory": "7g", "spark.ui.enabled": "true", "spark.sql.extensions": "x.Y"}
    assert given.items() <= options(given).items()


def test_java_options_of_the_user_come_after_ours() -> None:
    ours = java_options()
    both = java_options({"spark.driver.extraJavaOptions": "-Xss4m -XX:TieredStopAtLevel=4"})
    assert both == [*ours, "-Xss4m", "-XX:TieredStopAtLevel=4"]


def test_a_local_session_has_the_bundle_on_its_class_path_and_copies_it_nowhere() -> None:
    made = options({"spark.driver.extraClassPath": "/mine.jar"})
    assert made["spark.driver.extraClassPath"] == "/jars/bundle.jar:/mine.jar"
    assert "spark.jars" not in made


def test_a_cluster_is_sent_the_bundle_beside_the_users_jars() -> None:
    made = options({"spark.master": "yarn", "spark.jars": "/mine.jar"})
    assert made["spark.jars"] == "/jars/bundle.jar,/mine.jar"
    assert "spark.driver.extraClassPath" not in made


def test_a_hudi_bundle_of_the_user_replaces_ours() -> None:
    for key in ("spark.jars", "spark.jars.packages", "spark.driver.extraClassPath"):
        made = options({key: "org.apache.hudi:hudi-spark3.5-bundle_2.12:1.1.1"})
        assert not any("/jars/bundle.jar" in value for value in made.values())


def test_a_cluster_keeps_its_own_addresses_and_folders() -> None:
    made = options({"spark.master": "spark://host:7077"})
    for key in ("spark.driver.bindAddress", "spark.driver.host", "spark.local.dir"):
        assert key not in made


def test_nothing_is_written_to_the_current_folder() -> None:
    made = options()
    assert made["spark.sql.warehouse.dir"] == "file:///scratch/warehouse"
    assert made["spark.local.dir"] == "/scratch/local"
    assert made["spark.hadoop.hadoop.tmp.dir"] == "/scratch/hadoop"
    assert "-Dderby.system.home=/scratch/derby" in java_options()


def test_a_quiet_session_has_our_logging_and_a_verbose_one_sparks() -> None:
    ours = "-Dlog4j2.configurationFile=file:///scratch/log4j2.properties"
    assert ours in java_options()
    assert ours not in java_options(verbose=True)


def test_the_archive_is_used_if_it_exists_and_a_broken_one_does_no_harm() -> None:
    with_archive = java_options()
    assert "-XX:SharedArchiveFile=/jvm/key.jsa" in with_archive
    assert "-Xshare:auto" in with_archive
    without = java_options(files=Files(FILES.scratch, FILES.bundle))
    assert not any("share" in option.lower() for option in without)


def test_folders_with_spaces_stay_one_option() -> None:
    files = Files(Path("/my scratch"), Path("/b.jar"), Path("/my jvm/key.jsa"))
    made = java_options(files=files)
    assert "-Dderby.system.home=/my scratch/derby" in made
    assert "-XX:SharedArchiveFile=/my jvm/key.jsa" in made
    assert "-Dlog4j2.configurationFile=file:///my%20scratch/log4j2.properties" in made


def test_our_extension_is_the_one_that_a_callers_session_is_checked_for() -> None:
    assert HUDI_OPTIONS["spark.sql.extensions"] == EXTENSION


def test_a_cluster_is_sent_the_jars_of_s3_beside_the_bundle() -> None:
    files = Files(FILES.scratch, FILES.bundle, storage=(Path("/jars/a.jar"), Path("/jars/b.jar")))
    made = options({"spark.master": "yarn", "spark.jars": "/mine.jar"}, files)
    assert sorted(made["spark.jars"].split(",")) == [
        "/jars/a.jar",
        "/jars/b.jar",
        "/jars/bundle.jar",
        "/mine.jar",
    ]
