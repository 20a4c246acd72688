"""In which order runs are made: the most informative first, so that the time may be over at any point.

The first seed goes through all stages, then the next one; only the leading strategies on the mild split get their
other seeds earlier. Within a stage the leading strategies come first; on the hard split, where a run may take as long
as fifteen short ones, the others wait for the last stage.
"""

STAGES = (
    "mild split",  # every strategy to its target
    "same time",  # every strategy on the hard split, for a part of the way
    "second seeds",  # of the leading strategies on the mild split
    "windows",
    "texts",  # every strategy on texts
    "delta",  # the search for a good FedFa-Delta
    "unequal work",
    "refill",
    "mixing",
    "concurrency",
    "hard split",  # to its target, which is far
    "to the end",  # on past the target, for the best accuracy
)
SECOND_SEEDS = STAGES.index("second seeds")
LAST = len(STAGES) - 1


def rank(stage: str, leading: bool, nth_seed: int) -> tuple[int, int]:
    """Lower is earlier."""
    place = STAGES.index(stage)
    if nth_seed and leading and place == 0:
        return SECOND_SEEDS, nth_seed
    if stage == "hard split" and not leading:
        place = LAST
    return place + nth_seed * len(STAGES), 0 if leading else 1
