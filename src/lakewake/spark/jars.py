"""The jars of a session: the Hudi bundle, and those for the tables' file systems."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from lakewake.config.home import lakewake_home
from lakewake.errors import SetupError

BUNDLE = "org.apache.hudi:hudi-spark3.5-bundle_2.12:1.2.0"
#: The jars with which the Hadoop in PySpark 3.5 supports s3a://.
S3_JARS = (
    "org.apache.hadoop:hadoop-aws:3.3.4",
    "com.amazonaws:aws-java-sdk-bundle:1.12.262",
    "org.wildfly.openssl:wildfly-openssl:1.0.7.Final",
)


def bundle_jar() -> Path:
    """The Hudi bundle that `lakewake setup` fetched.

    Raises:
        SetupError: it is missing.
    """
    jar = bundle_path()
    if not jar.is_file():
        raise SetupError(f"the Hudi bundle is not at {jar}", hint="run `lakewake setup`")
    return jar


def bundle_path() -> Path:
    """Where the Hudi bundle is, once it has been fetched."""
    return jar_path(BUNDLE)


def jar_path(coordinates: str) -> Path:
    """Where the jar with these Maven coordinates is, once it has been fetched."""
    _, name, version = coordinates.split(":")
    return lakewake_home() / "jars" / f"{name}-{version}.jar"


def storage_jars(
    options: Mapping[str, str], tables: Collection[str], *, local: bool
) -> tuple[Path, ...]:
    """The jars that a session with these options needs to reach these tables.

    A cluster may have its own: there, jars that have not been fetched are left out.

    Raises:
        SetupError: the session is local and they have not been fetched.
    """
    if not any(table.startswith("s3a://") for table in tables) or brings(options, "hadoop-aws"):
        return ()
    jars = tuple(map(jar_path, S3_JARS))
    missing = next((jar for jar in jars if not jar.is_file()), None)
    if missing is None:
        return jars
    if not local:
        return ()
    raise SetupError(
        f"a table on s3a:// needs {S3_JARS[0]}, but {missing} does not exist",
        hint="run `lakewake setup --s3` (282 MB, once)",
    )


def storage_options(tables: Collection[str]) -> dict[str, str]:
    """The options that a session needs to reach these tables."""
    if not any(table.startswith("s3a://") for table in tables):
        return {}
    from lakewake.net.s3 import find_s3, spark_options

    return spark_options(find_s3())


def brings(options: Mapping[str, str], jar: str) -> bool:
    """Whether the user's own options put a jar with this name on the class path."""
    keys = ("spark.jars", "spark.jars.packages", "spark.driver.extraClassPath")
    return any(jar in options.get(key, "") for key in keys)
