"""Decides whether Spark's commits on a storage are safe with several writers, and this program's beside them: the one place for that. Pure: no
Spark, clock or I/O.

Delta needs commits that are put-if-absent. HDFS, ABFS and GCS have that; on a local disk a file lock of ours makes it so, for the processes of one
host. Plain S3 does not: the later of two commits of Spark's replaces the earlier and both report success.
"""

from __future__ import annotations

from geo.locations import scheme_of, storage_of

_NOT_FOR_S3 = ("S3SingleDriverLogStore", "HDFSLogStore", "LocalLogStore", "AzureLogStore", "GCSLogStore")
"""Log stores of Delta that do not make S3 safe for several drivers. Hadoop's create-if-absent on S3A is not one: both of two
streams that are open at once succeed."""

_PUT_IF_ABSENT = ("hdfs", "viewfs", "abfs", "abfss", "wasb", "wasbs", "adl", "gs")
"""Storages on which the log store that Delta takes by itself commits put-if-absent."""

_SHARED_MOUNTS = ("nfs", "cifs", "smb", "fuse", "9p", "ceph", "gluster", "lustre", "beegfs", "virtiofs")
"""File systems that look like a local disk and are shared by hosts: a file lock there holds on one host, or not at all."""


def why_unsafe(location: str, *, log_store: str | None, mount: str, databricks: bool) -> str | None:
    """Tells why a cluster whose tables lie at `location` may not be written by two drivers, with the ways out; None if it may.

    `log_store` is the class that Delta was started with for such a location, `mount` the type of the file system at a local path.
    """
    scheme, is_s3 = scheme_of(location), storage_of(location) == "s3a"
    if scheme == "":
        if not mount.startswith(_SHARED_MOUNTS):
            return None
        return (
            f"{location}: is on a {mount} mount, where the file lock that keeps commits of several processes apart holds on one host "
            "only, or not at all. Nothing was written. Use the storage's own URI."
        )
    if databricks or scheme in _PUT_IF_ABSENT:
        return None
    if log_store is not None and not (is_s3 and log_store.endswith(_NOT_FOR_S3)):
        return None
    if is_s3:
        return (
            f"{location}: commits to plain S3 are not safe. With two drivers, a publisher and a link or two links, one commit replaces the "
            "other and both report success: messages are lost. Nothing was written. Either start Spark with a log store that is "
            f"put-if-absent, such as --conf spark.delta.logStore.{scheme}.impl=io.delta.storage.S3DynamoDBLogStore with its jar and "
            "table; or let the cluster have an S3 `root`, which this program writes by itself."
        )
    return (
        f"{location}: whether commits to {scheme}: are put-if-absent is not known here. If they are not, two drivers lose messages in "
        f"silence. Nothing was written. Start Spark with a log store that is, --conf spark.delta.logStore.{scheme}.impl=CLASS."
    )


def why_not_by_port(location: str, *, log_store: str | None) -> str | None:
    """Tells why this program may not write by itself what lies at `location`; None if it may. `log_store` as above."""
    if log_store is None or log_store.endswith(_NOT_FOR_S3):
        return None
    return (
        f"{location}: Spark was started with the log store {log_store}, which keeps newest commits in a place of its own; this program puts "
        "them into the log, each if it is absent, so both together lose messages. Nothing was written. Start without "
        f"spark.delta.logStore.{scheme_of(location)}.impl."
    )
