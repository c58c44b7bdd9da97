"""All kinds of foreign commits."""

from tests.foreign import by_delta_rs, by_spark, crafted
from tests.foreign.place import Kind

KINDS: list[Kind] = [*by_spark.KINDS, *by_delta_rs.KINDS, *crafted.KINDS]
