"""The numbers that every table of the comparison is given."""

import numpy as np

BATCH = 64
GROUP = 8  # entries that are inserted together, at one version
FILL_VERSIONS = 500  # over which the table is filled; timing starts at this version

EXPONENT = 0.6  # alpha
AGE_DECAY = 500.0  # tau, in versions
EPSILON = 1e-6  # added to every base

# Beta rises so slowly that no table reaches 1 during the comparison: powers of 1 are cheaper than others.
BETA = 0.4
BETA_VERSIONS = 10_000_000
BETA_SLOPE = (1 - BETA) / BETA_VERSIONS

ROWS = 4096  # rows of update values, used in turn


class Sequence:
    """What is inserted and what the updates set, for n entries.

    bases    float64 [n]            without EPSILON
    versions int32 [n]              at which the entries were made
    values   float64 [ROWS, BATCH]  that the updates set, without EPSILON

    All bases and values are float32 numbers, so that tables of either precision get the same.
    """

    def __init__(self, n, seed=1):
        if n % GROUP:
            raise ValueError(f"n is {n}: give a multiple of {GROUP}")
        rng = np.random.default_rng([seed, n])
        self.n = n
        self.bases = lognormal(rng, n)
        self.values = lognormal(rng, (ROWS, BATCH))
        first = np.arange(n, dtype=np.int64) // GROUP * GROUP
        self.versions = (first * FILL_VERSIONS // n).astype(np.int32)

    def write(self, folder):
        """Write bases, versions and values as little-endian arrays for the Go program."""
        self.bases.astype("<f8").tofile(folder / "bases.f64")
        self.versions.astype("<i4").tofile(folder / "versions.i32")
        self.values.astype("<f8").tofile(folder / "values.f64")


def lognormal(rng, shape):
    """Magnitudes as absolute advantages have them: most below 1, a few several times that."""
    return np.exp(rng.normal(-0.5, 1.0, shape)).astype(np.float32).astype(np.float64)


def beta_at(version):
    return BETA + BETA_SLOPE * version


def weights_of(bases, versions, version, exponent=EXPONENT, age_decay=AGE_DECAY):
    """w_i = (base_i exp(-age_i/tau))^alpha, straight from the definition."""
    age = version - versions.astype(np.float64)
    return ((bases + EPSILON) * np.exp(-age / age_decay)) ** exponent
