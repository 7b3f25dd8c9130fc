"""Whether a table draws what the definition says, before its speed is measured."""

import math

import numpy as np

from sequence import BATCH, EXPONENT, Sequence, beta_at, weights_of

ENTRIES = 1000
CYCLES = 50  # with updates, before the draws that are counted
BATCHES = 20_000
# One-sided normal quantile of 1e-6: a right table fails once in a million runs.
QUANTILE = 4.753


class Wrong(Exception):
    """A table draws or weighs otherwise than defined."""


def sequence():
    return Sequence(ENTRIES)


def check(table, sequence):
    """Raise Wrong unless the table's frequencies and weights follow from the bases after some cycles.

    Stratified draws vary less than independent ones, so a chi-square test for independent draws is on the safe
    side. The same counts must contradict a distribution with a slightly different exponent: the test has power.
    """
    bases = sequence.bases.copy()
    table.follow(CYCLES, bases)
    if np.array_equal(bases, sequence.bases):
        raise Wrong(f"{table.name}: {CYCLES} cycles updated nothing")
    counts, ids, weights = table.draw(BATCHES, sequence.n)
    if counts.sum() != BATCHES * BATCH:
        raise Wrong(f"{table.name}: {counts.sum()} draws, asked for {BATCHES * BATCH}")

    def statistic(exponent):
        w = weights_of(bases, sequence.versions, table.version, exponent, table.age_decay)
        expected = counts.sum() * w / w.sum()
        return ((counts - expected) ** 2 / expected).sum()

    limit = chi_square_limit(sequence.n - 1)
    right, other = statistic(EXPONENT), statistic(EXPONENT + 0.05)
    if right > limit:
        raise Wrong(f"{table.name}: frequencies do not fit: chi-square {right:.0f}, at most {limit:.0f} is chance")
    if other < limit:
        raise Wrong(f"{table.name}: the check has no power: a wrong exponent passes with chi-square {other:.0f}")

    w = weights_of(bases, sequence.versions, table.version, age_decay=table.age_decay)[ids]
    expected = w ** -beta_at(table.version)
    worst = np.abs(weights / weights.max() / (expected / expected.max()) - 1).max()
    if worst > 1e-4:  # weights are float32, and so is cpprb's tree
        raise Wrong(f"{table.name}: importance weights are off by {worst:.1e} of their value")
    return {"chi_square": right, "limit": limit, "wrong_exponent": other, "weights_off_by": worst}


def chi_square_limit(df):
    """Wilson and Hilferty's approximation of the quantile."""
    a = 2 / (9 * df)
    return df * (1 - a + QUANTILE * math.sqrt(a)) ** 3
