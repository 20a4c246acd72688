"""Random numbers as pure functions of what they are for: nothing is stored, and no order of drawing matters."""

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


def keyed(seed: int, *keys: int) -> int:
    """64 well-mixed bits for a seed and some numbers (the SplitMix64 finaliser, Steele et al. 2014, per key)."""
    z = seed & _MASK
    for key in keys:
        z = (z + (key + 1) * _GOLDEN) & _MASK
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        z ^= z >> 31
    return z


def uniform(seed: int, key: int) -> float:
    """A uniform number in (0, 1) for a seed and a number: ``keyed`` without its loop."""
    z = (seed + (key + 1) * _GOLDEN) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return (((z ^ (z >> 31)) >> 11) + 0.5) * (1.0 / (1 << 53))


# What a draw is for: one stream each.
CHOICE, SPEED, JITTER, LINK = range(1, 5)
DROPOUT, PHASE, BATCHES, SPLIT, INITIAL, EPOCHS, MEASURED = range(6, 13)
