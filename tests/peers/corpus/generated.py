"""Programs that a generator writes: a random schema, random changes of rows and of the schema, by a seed.

``generated/17`` is the program of seed 17; ``generated/17~0,2,5`` the one that is left when only these of its statements
run, which is how ``differ.shrink`` makes a program smaller.
"""

from __future__ import annotations

import random

from differ.programs import Corpus, Program, Statement

SUBJECT = "generated"
SEEDS = range(40)
TYPES = {  # values of each type, by the texts that make them
    "INT": ("1", "2", "-7", "NULL"),
    "BIGINT": ("1L", "9223372036854775807L", "-3L", "NULL"),
    "STRING": ("'a'", "'b'", "''", "'é \\'q\\''", "NULL"),
    "DOUBLE": ("1.5D", "CAST('NaN' AS DOUBLE)", "-0.0D", "2D", "NULL"),
    "DECIMAL(10,2)": ("1.50BD", "-2.25BD", "NULL"),
    "DATE": ("DATE'2024-01-01'", "DATE'1500-03-01'", "NULL"),
    "TIMESTAMP": ("TIMESTAMP'2024-11-03 01:30:00'", "TIMESTAMP'2024-03-10 02:30:00'", "NULL"),
    "BOOLEAN": ("true", "false", "NULL"),
    "STRUCT<a:INT,b:STRING>": ("named_struct('a', 1, 'b', 'x')", "named_struct('a', NULL, 'b', 'y')", "NULL"),
    "ARRAY<INT>": ("array(1, 2)", "array()", "NULL"),
}
PLAIN = [kind for kind in TYPES if not kind.startswith(("STRUCT", "ARRAY", "BOOLEAN"))]
PROPERTIES = (
    "'delta.enableDeletionVectors' = 'true'",
    "'delta.columnMapping.mode' = 'name'",
    "'delta.enableChangeDataFeed' = 'true'",
)

corpus = Corpus(SUBJECT)


class _Writer:
    """Writes one program."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.columns: dict[str, str] = {"id": "INT"}
        self.added = 0
        for _ in range(self.random.randint(1, 4)):
            self.columns[f"c{len(self.columns)}"] = self.random.choice(list(TYPES))
        choices = [name for name, kind in self.columns.items() if kind in PLAIN and name != "id"]
        self.partition = self.random.choice(choices) if choices and self.random.random() < 0.4 else None
        self.properties = [item for item in PROPERTIES if self.random.random() < 0.35]

    def statements(self) -> list[str]:
        """The whole program."""
        made = ", ".join(f"{name} {kind}" for name, kind in self.columns.items())
        text = f"CREATE TABLE {{t}} ({made}) USING delta"
        if self.partition:
            text += f" PARTITIONED BY ({self.partition})"
        if self.properties:
            text += f" TBLPROPERTIES ({', '.join(self.properties)})"
        steps = [self.delete, self.update, self.merge, self.insert, self.insert_some, self.evolve]
        chosen = self.random.choices(steps, weights=[3, 3, 4, 2, 1, 2], k=self.random.randint(3, 6))
        return [text, self.insert(), *(step() for step in chosen)]

    def value(self, name: str) -> str:
        return self.random.choice(TYPES[self.columns[name]])

    def row(self, key: int) -> str:
        rest = [self.value(name) for name in self.columns if name != "id"]
        return f"({', '.join([str(key), *rest])})"

    def insert(self) -> str:
        keys = self.random.sample(range(12), self.random.randint(2, 5))
        return f"INSERT INTO {{t}} VALUES {', '.join(map(self.row, keys))}"

    def insert_some(self) -> str:
        some = ["id", *(name for name in self.columns if name != "id" and self.random.random() < 0.5)]
        values = ", ".join("100" if name == "id" else self.value(name) for name in some)
        return f"INSERT INTO {{t}} ({', '.join(some)}) VALUES ({values})"

    def condition(self, qualifier: str = "") -> str:
        name = self.random.choice([name for name, kind in self.columns.items() if kind in PLAIN])
        column, value = qualifier + name, self.value(name)
        shapes = (
            f"{column} = {value}",
            f"{column} <=> {value}",
            f"{column} > {value}",
            f"NOT ({column} <= {value})",
            f"{column} IS NULL",
            f"{column} IN ({value}, {self.value(name)})",
            f"{qualifier}id % {self.random.randint(2, 3)} = 0",
            f"({column} = {value} OR {qualifier}id > {self.random.randint(0, 11)})",
        )
        return self.random.choice(shapes)

    def delete(self) -> str:
        return f"DELETE FROM {{t}} WHERE {self.condition()}"

    def changed(self) -> str:
        names = [name for name in self.columns if name != "id"]
        return self.random.choice(names) if names else "id"

    def update(self) -> str:
        name = self.changed()
        return f"UPDATE {{t}} SET {name} = {self.value(name)} WHERE {self.condition()}"

    def merge(self) -> str:
        keys = self.random.sample(range(14), self.random.randint(1, 4))
        names = ", ".join(self.columns)
        text = f"MERGE INTO {{t}} AS t USING (VALUES {', '.join(map(self.row, keys))}) AS s({names}) ON t.id = s.id"
        name = self.changed()
        matched = [
            "WHEN MATCHED THEN UPDATE SET *",
            f"WHEN MATCHED AND {self.condition('t.')} THEN UPDATE SET {name} = s.{name}",
            f"WHEN MATCHED AND {self.condition('t.')} THEN DELETE",
        ]
        missing = ["WHEN NOT MATCHED THEN INSERT *", f"WHEN NOT MATCHED AND {self.condition('s.')} THEN INSERT *"]
        by_source = [
            f"WHEN NOT MATCHED BY SOURCE AND {self.condition('t.')} THEN DELETE",
            f"WHEN NOT MATCHED BY SOURCE AND {self.condition('t.')} THEN UPDATE SET {name} = {self.value(name)}",
        ]
        clauses = [self.random.choice(kind) for kind in (matched, missing, by_source) if self.random.random() < 0.7]
        return f"{text} {' '.join(clauses or missing[:1])}"

    def evolve(self) -> str:
        self.added += 1
        name, kind = f"n{self.added}", self.random.choice(list(TYPES))
        self.columns[name] = kind
        return f"ALTER TABLE {{t}} ADD COLUMNS ({name} {kind})"


def program(name: str) -> Program:
    """Write the program of a name: a seed, and perhaps which of its statements are left."""
    seed, _, kept = name.removeprefix(f"{SUBJECT}/").partition("~")
    texts = _Writer(int(seed)).statements()
    if kept:
        texts = [texts[int(place)] for place in kept.split(",")]
    return Program(name, tuple(map(Statement, texts)))


corpus.programs += [program(f"{SUBJECT}/{seed}") for seed in SEEDS]
