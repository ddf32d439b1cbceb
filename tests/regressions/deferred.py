"""Rows of the public reports that wait for a later issue, by the topic of that issue."""

ROWS = {
    "a": "01 02 04 05 07 08 10 11 13 14 16 17 19 20 22 23 25 26 28 29 31 32 34 35 37 38 40",
    "b": "01 02 04 05 07 08 10 11 13 14 16 17 19 20 22 23 25 26 28 29",
    "c": "01 02 04 05 07 08 10 11 13 14 16 17 19 20 22 23 25 26 28 29 31 32 34",
    "d": "01 02 04 05 07",
    "e": "01 02 04 05 07 08 10 11 13 14 16 17 19 20",
    "f": "01 02 04 05 07 08 10 11 13 14 16 17 19 20 22 23 25",
    "g": "01 02 04 05 07 08 10 11",
}
"""Row numbers of each section; a row's ID is the section letter and its number."""

DEFERRED = {
    "a32": "distributed",
    "b19": "distributed",
    "e08": "distributed",
    "g08": "distributed",
    "b28": "verdict",
    "c29": "needs a nightly torch",
    "c32": "distributed",
    "e02": "migration",
    "e20": "migration",
    "e17": "none yet",
    "e19": "none yet",
    "f23": "none yet",
    "f25": "none yet",
    "g10": "none yet",
    "g11": "none yet",
}
"""Rows without any test here."""

PARTLY_DEFERRED = {
    "c01": "compile features",  # buckets
    "c08": "compile features",  # a folder that repeats the failure, without being asked for
    "c34": "verdict",  # instructions, estimated before compiling
    "g01": "distributed",
}
"""Rows whose eager or single-process part is tested here and whose rest waits."""
