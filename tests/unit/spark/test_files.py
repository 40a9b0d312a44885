"""Each Java, Spark and bundle has a class-data archive of its own."""

from __future__ import annotations

import os
from pathlib import Path

from lakewake.spark.files import archive_path
from lakewake.spark.java import Java

JAVA = Java(Path("/java"), "17.0.9", "PATH")


def test_another_java_or_bundle_has_another_archive(tmp_path: Path) -> None:
    first, second = tmp_path / "a.jar", tmp_path / "b.jar"
    first.touch()
    second.touch()
    newer = Java(JAVA.home, "17.0.15", JAVA.origin)
    assert archive_path(JAVA, first) == archive_path(JAVA, first)
    assert (
        len({archive_path(JAVA, first), archive_path(newer, first), archive_path(JAVA, second)})
        == 3
    )


def test_a_replaced_bundle_has_another_archive(tmp_path: Path) -> None:
    jar = tmp_path / "a.jar"
    jar.touch()
    before = archive_path(JAVA, jar)
    os.utime(jar, ns=(1, 1))
    assert archive_path(JAVA, jar) != before
