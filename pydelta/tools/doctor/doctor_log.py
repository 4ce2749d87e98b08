"""Find known problems in a job's log, each with its cause and its fix. Only reads text.

Lines are examined one by one, so a log of any size takes little memory. Only text that a pattern matched is kept, so
other content of a line, such as keys and addresses, is never repeated.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

__all__ = ["KNOWN", "Finding", "KnownTrouble", "LogReport", "read_log"]

_EXCERPT: Final = 160
_LONGEST: Final = 20_000
"""Characters of a line that are examined."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTrouble:
    """A known message.

    Args:
        name: Short name, for programs.
        pattern: Pattern that finds the message in one line of a log.
        cause: Cause of the message.
        cure: What to do.
    """

    name: str
    pattern: re.Pattern[str]
    cause: str
    cure: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A known trouble in a log.

    Args:
        trouble: The trouble.
        line: Number of the first line with the message, from 1.
        count: Number of lines with the message.
        excerpt: The matched text of the first line.
    """

    trouble: KnownTrouble
    line: int
    count: int
    excerpt: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogReport:
    """The number of lines of a log, and the troubles in the order of their first lines."""

    lines: int
    findings: tuple[Finding, ...]


def _known(name: str, pattern: str, cause: str, cure: str) -> KnownTrouble:
    return KnownTrouble(name=name, pattern=re.compile(pattern), cause=cause, cure=cure)


KNOWN: Final = (
    _known(
        "kerberos-renewer",
        r"Can['’]t get Master Kerberos principal for use as renewer",
        "The process sees no yarn-site.xml, so it cannot tell who renews delegation tokens.",
        "Presto and Trino: let hive.config.resources in the catalog file (etc/catalog/hive.properties, on every node) "
        "name core-site.xml, hdfs-site.xml and yarn-site.xml by their full paths, and restart. Spark and a metastore: "
        "put the three into HADOOP_CONF_DIR.",
    ),
    _known(
        "kerberos-ticket",
        r"No Kerberos credentials available|Failed to find any Kerberos tgt|GSS initiate failed"
        r"|Ticket expired|No credentials cache found",
        "There is no valid Kerberos ticket where the process looks for one.",
        "Run kinit (or kinit -k -t KEYTAB PRINCIPAL) as the same user, check with klist, and check KRB5CCNAME.",
    ),
    _known(
        "kerberos-principal",
        r"Server not found in Kerberos database|Server \S+ not found in Kerberos database"
        r"|GSSException: No valid credentials provided \(Mechanism level: Fail to create credential",
        "The KDC does not know the service's principal, which is made of the service and the host name.",
        "Name the host as its principal does (hive/HOST@REALM): its full name, not an address or an alias. "
        "In krb5.conf, rdns = false keeps a reverse look-up from changing it.",
    ),
    _known(
        "kerberos-no-hadoop",
        r"Kerberos principal should have 3 parts",
        "A metastore with SASL does not see that Hadoop is to use Kerberos, and takes the name of its user for its "
        "principal.",
        "Set hadoop.security.authentication=kerberos in a core-site.xml on its class path: in hive-site.xml alone it "
        "is not seen.",
    ),
    _known(
        "clock-skew",
        r"Clock skew too great|RequestTimeTooSkewed|RequestExpired",
        "The clocks of this machine and of the other side differ by more than it allows (5 minutes in Kerberos, 15 "
        "in S3).",
        "Set both clocks by NTP. pydelta doctor URI measures the difference to a store.",
    ),
    _known(
        "hive4-server",
        r"Invalid method name: '[a-z_]+'",
        "The metastore's server is newer than its client: Hive 4 has dropped calls, get_table among them, that "
        "clients of Hive 2.3, Spark's built-in one too, still make.",
        "Use a Hive Metastore 3.1 server with Spark's built-in client. catalog_sync itself speaks to 2.3, 3.1 and 4.0.",
    ),
    _known(
        "symlink-read-as-parquet",
        r"_symlink_format_manifest\S*.{0,80}is not a Parquet file"
        r"|(?:footer|FAILED_READ_FILE|CANNOT_READ_FILE|reading file|read file).{0,400}_symlink_format_manifest"
        r"|/manifest is not a Parquet file",
        "Spark without pydelta reads a SymlinkTextInputFormat table: it takes the manifest for a Parquet file. (With "
        "spark.sql.hive.convertMetastoreParquet=false it returns rows of NULLs, and no error.)",
        "Call pydelta.enable(spark), or read the native entry of the table; leave the twin to Trino and Presto.",
    ),
    _known(
        "symlink-read-by-hive",
        r"Text cannot be cast to (?:class )?org\.apache\.hadoop\.io\.ArrayWritable"
        r"|ClassNotFoundException: org\.apache\.hadoop\.hive\.ql\.io\.SymlinkTextInputFormat"
        r"|Error in loading storage handler.{0,100}SymlinkTextInputFormat"
        r"|SymlinkTextInputFormat not found",
        "Hive's own reader opened a SymlinkTextInputFormat table: it reads the files that a manifest names as lines "
        "of text, which they are not, or has no such class at all.",
        "Read the twin with the hive connectors of Trino and Presto only, the native entry with Spark and pydelta.",
    ),
    _known(
        "hadoop-mixed-versions",
        r"NumberFormatException: For input string: \"\d+(?:ms|s|m|h|d)\"",
        "Two versions of Hadoop meet: the defaults of the newer one are written with a unit (60s, 24h), and the older "
        "one, often hadoop-aws, reads a bare number.",
        "Take hadoop-aws of exactly the version of the hadoop-client jars (hadoop-client-api-*.jar in pyspark/jars), "
        "and remove the other.",
    ),
    _known(
        "hadoop-mixed-classes",
        r"(?:NoSuchMethodError|NoClassDefFoundError|IncompatibleClassChangeError|NoSuchFieldError).{0,60}"
        r"org[./]apache[./]hadoop",
        "Jars of different Hadoop versions are on one class path.",
        "Let every hadoop-*.jar have the version of hadoop-client-api in pyspark/jars.",
    ),
    _known(
        "s3a-missing",
        r"org\.apache\.hadoop\.fs\.s3a\.S3AFileSystem not found|No FileSystem for scheme \"?s3a?\"?",
        "Spark has no S3A file system: hadoop-aws is not among its jars.",
        "Add org.apache.hadoop:hadoop-aws in Spark's own Hadoop version (--packages), and name paths s3a://.",
    ),
    _known(
        "s3-credentials",
        r"NoAuthWithAWSException|Unable to load (?:AWS )?credentials|InvalidAccessKeyId|SignatureDoesNotMatch",
        "The object store got no key, or one that it does not know.",
        "Set fs.s3a.access.key and fs.s3a.secret.key (or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY) on the driver "
        "and on the executors.",
    ),
    _known(
        "trino-missing-file",
        r"HIVE_FILE_NOT_FOUND|[Mm]anifest file.{0,200}contains non-?existent path",
        "A manifest names a file that is gone: deleted by VACUUM after the manifests stopped being kept, or by hand; "
        "or Trino lists the files from a cache.",
        "Run catalog_sync sync TABLE, then catalog_sync verify TABLE. Keep hive.file-status-cache-tables off for "
        "these schemas, and the retention longer than the longest query.",
    ),
    _known(
        "trino-bad-manifest",
        r"HIVE_BAD_DATA|Error parsing symlinks",
        "Trino cannot read a manifest, or a file that it names: a blank line or a relative path in a manifest that was "
        "edited or made by something else, or types in the metastore that are not those of the files.",
        "Run pydelta generate --full PATH and catalog_sync sync --full TABLE, then catalog_sync verify TABLE.",
    ),
    _known(
        "trino-delta-entry",
        r"Cannot query Delta Lake table|UNSUPPORTED_TABLE_TYPE.{0,200}[Dd]elta",
        "Trino's hive connector was asked for the table's native entry.",
        "Query the twin (<database>_symlink by default), or the native entry through a delta_lake catalog.",
    ),
    _known(
        "metastore-async-log",
        r"(?:ClassNotFoundException|NoClassDefFoundError).{0,20}com[./]lmax[./]disruptor",
        "The metastore wants to log asynchronously and lacks the library for it.",
        "Set hive.async.log.enabled=false (metastore.async.log.enabled in the standalone one).",
    ),
    _known(
        "metastore-no-schema",
        r"Version information not found in metastore|Required table missing",
        "The metastore's database has no schema yet, or another version's.",
        "Run schematool -initSchema (or -upgradeSchema) with -dbType of the database, once, before the server starts.",
    ),
    _known(
        "tls-not-trusted",
        r"PKIX path building failed|CERTIFICATE_VERIFY_FAILED",
        "No authority that this process trusts has signed the certificate of the other side.",
        "Give its certificates: --ca for catalog_sync, javax.net.ssl.trustStore for Java, AWS_CA_BUNDLE for stores.",
    ),
    _known(
        "python-versions",
        r"PYTHON_VERSION_MISMATCH|Python in worker has different version",
        "Driver and executors run different Pythons.",
        "Set PYSPARK_PYTHON to a Python of the driver's minor version, on every machine.",
    ),
    _known(
        "worker-lacks-package",
        r"ModuleNotFoundError: No module named '(?:pydelta|pyarrow|polars|obstore|msgspec|lark)\b[^']*'",
        "The Python of this process lacks the packages of pydelta.",
        "Install pydelta where PYSPARK_PYTHON points, on every machine, or ship an environment with --archives.",
    ),
    _known(
        "no-delta-source",
        r"Failed to find (?:the )?data source:? `?delta`?|DATA_SOURCE_NOT_FOUND.{0,80}\bdelta\b",
        'Nothing in this session answers to format("delta").',
        "Call pydelta.enable(spark) after making the session, or make it with pydelta.session().",
    ),
    _known(
        "delta-settings-alone",
        r"(?:plugin class|ClassNotFoundException|CATALOG_\w*NOT_FOUND).{0,160}spark\.sql\.delta\.catalog\.DeltaCatalog"
        r"|Cannot use io\.delta\.sql\.DeltaSparkSessionExtension",
        "The session has the settings of the JVM engine and not its jar, and the program imports nothing of this one.",
        "Write import pydelta.tables before the session is made; the two settings may stay.",
    ),
    _known(
        "java-version",
        r"UnsupportedClassVersionError",
        "Java is too old for the jars: Spark 4 needs 17, 21 or 25.",
        "Install one of them and let JAVA_HOME name it, on every machine.",
    ),
)  # fmt: skip


def read_log(lines: Iterable[str]) -> LogReport:
    """Find known messages in a log.

    Args:
        lines: Lines of the log, in order.
    """
    first: dict[str, tuple[KnownTrouble, int, str]] = {}
    counts: dict[str, int] = {}
    number = 0
    for number, line in enumerate(lines, 1):
        seen = line[:_LONGEST]
        for trouble in KNOWN:
            if (found := trouble.pattern.search(seen)) is None:
                continue
            first.setdefault(trouble.name, (trouble, number, found.group()[:_EXCERPT]))
            counts[trouble.name] = counts.get(trouble.name, 0) + 1
    findings = tuple(
        Finding(trouble=trouble, line=line, count=counts[name], excerpt=excerpt)
        for name, (trouble, line, excerpt) in first.items()
    )
    return LogReport(lines=number, findings=findings)
