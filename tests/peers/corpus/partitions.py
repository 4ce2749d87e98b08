"""PARTITION clauses: values of every type, NULL and '' among them, in every INSERT."""

from __future__ import annotations

from differ.programs import Corpus

corpus = Corpus("partitions")

VALUES = {
    "STRING": ["NULL", "''", "'a'", "'None'", "'__HIVE_DEFAULT_PARTITION__'", "'a/b=c%d é'", "' x '", "1", "1.50", "DATE'2024-01-05'", "true", "x'41'", "plain", "\"q\"", "CAST(1 AS STRING)", "concat('a', 'b')", "1 + 1", "r'\\n'"],
    "INT": ["NULL", "''", "1", "-1", "'1'", "' 1 '", "1L", "1.0", "1.5", "1e0", "3000000000", "'x'", "true", "DATE'2024-01-05'", "+1"],
    "BIGINT": ["NULL", "9007199254740993", "-9223372036854775808", "1L", "'9007199254740993'"],
    "TINYINT": ["NULL", "1Y", "127", "128", "'1'"],
    "DATE": ["NULL", "''", "'2024-01-05'", "DATE'2024-01-05'", "date'0001-01-01'", "'2024-1-5'", "TIMESTAMP'2024-01-05 10:00:00'", "'x'", "20240105", "'2024-01-05 10:00:00'"],
    "TIMESTAMP": ["NULL", "''", "'2024-01-05 10:11:12.123456'", "TIMESTAMP'2024-01-05 10:11:12.5'", "TIMESTAMP'2024-01-05 10:11:12+02:00'", "TIMESTAMP_NTZ'2024-01-05 10:11:12'", "DATE'2024-01-05'", "'2024-11-03 01:30:00'"],
    "TIMESTAMP_NTZ": ["NULL", "'2024-01-05 10:11:12.123456'", "TIMESTAMP_NTZ'2024-01-05 10:11:12'", "TIMESTAMP'2024-01-05 10:11:12'"],
    "BOOLEAN": ["NULL", "''", "true", "FALSE", "'true'", "'yes'", "1", "0"],
    "DECIMAL(10, 2)": ["NULL", "''", "1.5", "1.50BD", "'1.50'", "1", "1.505", "99999999999", "1e2", "-0.5"],
    "DOUBLE": ["NULL", "1", "1.5", "1e10", "1.5D", "'NaN'", "-0.0", "0.1F"],
    "FLOAT": ["NULL", "1.5", "0.1", "0.1F", "1e40"],
    "BINARY": ["NULL", "x'4142'", "'ab'", "''"],
    "CHAR(4)": ["NULL", "'ab'", "'abcdef'", "''"],
    "VARCHAR(4)": ["NULL", "'ab'", "'abcdef'", "'abcd  '"],
}  # fmt: skip
FORMS = {
    "into": "INSERT INTO {{t}} PARTITION (p = {value}) SELECT {n}",
    "over": "INSERT OVERWRITE {{t}} PARTITION (p = {value}) SELECT {n}",
    "list": "INSERT INTO {{t}} PARTITION (p = {value}) (a) SELECT {n}",
    "names": "INSERT INTO {{t}} PARTITION (p = {value}) BY NAME SELECT {n} AS a",
}
SHOWN = "SELECT a, p, p IS NULL AS nothing FROM {t}"
SETTINGS = {
    "into": {},
    "into, LEGACY": {"spark__sql__storeAssignmentPolicy": "LEGACY"},
    "into, STRICT": {"spark__sql__storeAssignmentPolicy": "STRICT"},
    "into, not ANSI": {"spark__sql__ansi__enabled": "false"},
    "over": {},
    "over, dynamic": {"spark__sql__sources__partitionOverwriteMode": "dynamic"},
    "list": {},
    "names": {},
}
for kind, values in VALUES.items():
    made = f"CREATE TABLE {{t}} (a INT, p {kind}) USING delta PARTITIONED BY (p);\n INSERT INTO {{t}} VALUES (0, NULL)"
    for form, settings in SETTINGS.items():
        if form != "into" and kind not in ("STRING", "INT", "DATE"):
            continue
        given = values if form in ("into", "over") else values[:6]
        steps = [FORMS[form.split(",")[0]].format(value=value, n=n + 1) for n, value in enumerate(given)]
        corpus.sql(f"{kind} {form}", ";\n".join([made, *steps, SHOWN]), **settings)

TWO = """
    CREATE TABLE {t} (a INT, p STRING, b INT, q INT) USING delta PARTITIONED BY (p, q);
    INSERT INTO {t} VALUES (0, 'x', 0, 0), (1, 'x', 1, 1), (2, NULL, 2, NULL), (3, 'y', 3, 0);
"""
OVERWRITTEN = (
    "both static", "static and dynamic", "dynamic and static", "null and dynamic", "null and null", "empty and null",
    "with a list", "by name", "with", "if not exists",
)  # fmt: skip
for name, text in {
    "both static": "INSERT INTO {t} PARTITION (p = 'x', q = 5) SELECT 9, 8",
    "both static, other order": "INSERT INTO {t} PARTITION (q = 5, p = 'x') SELECT 9, 8",
    "static and dynamic": "INSERT INTO {t} PARTITION (p = 'x', q) SELECT 9, 8, 7",
    "dynamic and static": "INSERT INTO {t} PARTITION (p, q = 5) SELECT 9, 'z', 8",
    "both dynamic": "INSERT INTO {t} PARTITION (p, q) SELECT 9, 'z', 8, 7",
    "one dynamic": "INSERT INTO {t} PARTITION (q) SELECT 9, 'z', 8, 7",
    "one static": "INSERT INTO {t} PARTITION (q = 5) SELECT 9, 'z', 8",
    "null and dynamic": "INSERT INTO {t} PARTITION (p = NULL, q) SELECT 9, 8, 7",
    "null and null": "INSERT INTO {t} PARTITION (p = NULL, q = NULL) SELECT 9, 8",
    "empty and null": "INSERT INTO {t} PARTITION (p = '', q = NULL) SELECT 9, 8",
    "in another case": "INSERT INTO {t} PARTITION (P = 'x', Q = 5) SELECT 9, 8",
    "twice": "INSERT INTO {t} PARTITION (p = 'x', p = 'y') SELECT 9, 8, 7",
    "twice in another case": "INSERT INTO {t} PARTITION (p = 'x', P = 'y') SELECT 9, 8, 7",
    "not a partition column": "INSERT INTO {t} PARTITION (a = 1) SELECT 'x', 8, 7",
    "not a column": "INSERT INTO {t} PARTITION (nope = 1) SELECT 9, 'x', 8, 7",
    "too few": "INSERT INTO {t} PARTITION (p = 'x', q = 5) SELECT 9",
    "too many": "INSERT INTO {t} PARTITION (p = 'x', q = 5) SELECT 9, 8, 7",
    "with a list": "INSERT INTO {t} PARTITION (p = 'x', q = 5) (b, a) SELECT 9, 8",
    "with a list of one": "INSERT INTO {t} PARTITION (p = 'x', q = 5) (b) SELECT 9",
    "with a list and dynamic": "INSERT INTO {t} PARTITION (p = 'x', q) (b, a, q) SELECT 9, 8, 7",
    "named in the list too": "INSERT INTO {t} PARTITION (p = 'x') (a, p, q, b) SELECT 9, 'y', 8, 7",
    "by name": "INSERT INTO {t} PARTITION (p = 'x', q = 5) BY NAME SELECT 9 AS b, 8 AS a",
    "by name, given twice": "INSERT INTO {t} PARTITION (p = 'x') BY NAME SELECT 9 AS b, 8 AS a, 'y' AS p, 1 AS q",
    "values": "INSERT INTO {t} PARTITION (p = 'x', q = NULL) VALUES (9, 8), (7, DEFAULT)",
    "table": "INSERT INTO {t} PARTITION (p = 'x', q = NULL) TABLE {t}",
    "with": "WITH w AS (SELECT 9 AS a, 8 AS b) INSERT INTO {t} PARTITION (p = NULL, q = 5) SELECT * FROM w",
    "from": "FROM {t} INSERT INTO {t} PARTITION (p = NULL, q = 6) SELECT a, b INSERT INTO {t} PARTITION (p = 'n', q = NULL) SELECT a, b",
    "if not exists": "INSERT OVERWRITE {t} PARTITION (p = 'x', q = 5) IF NOT EXISTS SELECT 9, 8",
}.items():
    for word, settings in {
        "INTO": {},
        "OVERWRITE": {},
        "OVERWRITE ": {"spark__sql__sources__partitionOverwriteMode": "dynamic"},
    }.items():
        if name not in OVERWRITTEN if word != "INTO" else name == "if not exists":
            continue
        mode = f"{word.strip().lower()}{' dynamic' if settings else ''}"
        corpus.sql(f"two, {name}, {mode}", TWO + text.replace("INSERT INTO", f"INSERT {word.strip()}"), **settings)

for name, text in {
    "null in not null": "CREATE TABLE {t} (a INT, p STRING NOT NULL) USING delta PARTITIONED BY (p);\n INSERT INTO {t} PARTITION (p = NULL) SELECT 1;\n INSERT INTO {t} PARTITION (p = '') SELECT 1;\n INSERT INTO {t} VALUES (1, '')",
    "null in a check": "CREATE TABLE {t} (a INT, p STRING) USING delta PARTITIONED BY (p);\n ALTER TABLE {t} ADD CONSTRAINT c CHECK (p IS NOT NULL);\n INSERT INTO {t} PARTITION (p = NULL) SELECT 1;\n INSERT INTO {t} PARTITION (p = '') SELECT 1",
    "a parameter": "CREATE TABLE {t} (a INT, p STRING) USING delta PARTITIONED BY (p);\n EXECUTE IMMEDIATE 'INSERT INTO {t} PARTITION (p = :v) SELECT 1' USING 'x' AS v;\n EXECUTE IMMEDIATE 'INSERT INTO {t} PARTITION (p = ?) SELECT 2' USING NULL;\n EXECUTE IMMEDIATE 'INSERT OVERWRITE {t} PARTITION (p = :v) SELECT 3' USING 'x' AS v",
    "a generated column": "CREATE TABLE {t} (a INT, d DATE, y INT GENERATED ALWAYS AS (year(d))) USING delta PARTITIONED BY (y);\n INSERT INTO {t} PARTITION (y = 2024) SELECT 1, DATE'2024-05-05';\n INSERT INTO {t} PARTITION (y = NULL) SELECT 1, CAST(NULL AS DATE);\n INSERT INTO {t} PARTITION (y = NULL) SELECT 1, DATE'2024-05-05'",
    "mapped names": "CREATE TABLE {t} (a INT, p STRING) USING delta PARTITIONED BY (p) TBLPROPERTIES ('delta.columnMapping.mode' = 'name');\n INSERT INTO {t} PARTITION (p = NULL) SELECT 1;\n INSERT OVERWRITE {t} PARTITION (p = NULL) SELECT 2;\n INSERT OVERWRITE {t} PARTITION (p = '') SELECT 3",
    "a name with a dot": "CREATE TABLE {t} (a INT, `p.q` STRING) USING delta PARTITIONED BY (`p.q`);\n INSERT INTO {t} PARTITION (`p.q` = NULL) SELECT 1;\n INSERT OVERWRITE {t} PARTITION (`p.q` = 'v') SELECT 2;\n INSERT OVERWRITE {t} PARTITION (`p.q` = NULL) SELECT 3",
    "truncated": "CREATE TABLE {t} (a INT, p STRING) USING delta PARTITIONED BY (p);\n INSERT INTO {t} VALUES (1, NULL), (2, 'x');\n TRUNCATE TABLE {t} PARTITION (p = NULL);\n SELECT * FROM {t}",
    "described": "CREATE TABLE {t} (a INT, p STRING) USING delta PARTITIONED BY (p);\n INSERT INTO {t} VALUES (1, NULL), (2, 'x');\n SHOW PARTITIONS {t};\n SHOW PARTITIONS {t} PARTITION (p = NULL);\n DESCRIBE TABLE {t} PARTITION (p = NULL)",
    "by path": "CREATE TABLE delta.`{p}` (a INT, p STRING) USING delta PARTITIONED BY (p);\n INSERT INTO delta.`{p}` PARTITION (p = NULL) SELECT 1;\n INSERT OVERWRITE delta.`{p}` PARTITION (p = '') SELECT 2",
}.items():
    corpus.sql(f"one, {name}", text)
