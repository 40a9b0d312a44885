"""The files that Hudi has listed for a read: how many file groups, and how many bytes.

This asks the file index of the relation, which has listed them for the read itself. It is for
display only: if this Spark or Hudi does not show its file index, nothing is counted.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from lakewake.model.reads import NO_READS, Reads

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Names of more files than this are not brought here: each then counts as a file group.
NAMED_FILES = 50_000


#: Partitions and files of a part of a table that are counted one by one.
COUNTED = 2_000


class Listed(NamedTuple):
    """The URIs of the files that a query reads, and their bytes if it is of the whole table."""

    files: list[str]
    bytes: int


def whole_table(table: DataFrame) -> Reads:
    """What a snapshot query reads: the newest slice of every file group."""
    found = listed_by(table)
    if found is None:
        return NO_READS
    return Reads.whole(len(set(map(group_of, found.files))), found.bytes)


def part_of(whole: Reads, rows: DataFrame) -> Reads:
    """What a snapshot query with a condition reads of a table: the files of some partitions.

    `whole` if Spark does not show it, or if it is too much to be counted.
    """
    from py4j.protocol import Py4JError

    files: list[tuple[str, int]] = []
    try:
        scan = rows._jdf.queryExecution().sparkPlan().collectLeaves().head()
        partitions = scan.selectedPartitions()
        if len(partitions) > COUNTED:
            return whole
        for partition in partitions:
            listed = partition.files()
            if len(files) + listed.size() > COUNTED:
                return whole
            found = [listed.apply(n) for n in range(listed.size())]
            files += [(f.getPath().toString(), f.getLen()) for f in found]
    except (Py4JError, TypeError):
        return whole
    groups = {group_of(path) for path, _ in files}
    return replace(whole, groups=len(groups), bytes=sum(size for _, size in files))


def listed_by(table: DataFrame) -> Listed | None:
    """The files that a query of Hudi's has listed; None if it does not show them."""
    from py4j.protocol import Py4JError

    try:
        leaf = table._jdf.queryExecution().analyzed().collectLeaves().head()
        index = leaf.relation().location()
        files, size = index.inputFiles(), int(index.sizeInBytes())
        if len(files) > NAMED_FILES:
            return Listed([f"{n}_" for n in range(len(files))], size)
        # In one answer of the JVM: asking for each takes a round trip.
        jvm = table.sparkSession._jvm
        joined = jvm.org.apache.hadoop.util.StringUtils.join("\n", files)
    except Py4JError:
        return None
    return Listed(joined.split("\n") if joined else [], size)


def group_of(file: str) -> str:
    """The folder and the file id in the path of a base file or a log file."""
    folder, _, name = file.rpartition("/")
    return f"{folder}/{name.lstrip('.').partition('_')[0]}"
