"""The peers in Python. Each has sample, update and advance; a batch is a dict with id, indexes and weights."""

import math
import random
from operator import add
from time import perf_counter, process_time

import cpprb
import numpy as np

from sequence import AGE_DECAY, BATCH, BETA, BETA_SLOPE, EPSILON, EXPONENT, FILL_VERSIONS, ROWS, beta_at


class LevelRefresh:
    """A sum tree in lists whose every leaf is computed anew at each version, then its sums level by level.

    levels[0] are the leaves; each level has an even length, padded with 0, but for the root's.
    """

    name = "level-by-level refresh"
    age_decay = AGE_DECAY

    def __init__(self, sequence):
        self.bases = [x + EPSILON for x in sequence.bases.tolist()]
        self.versions = sequence.versions.tolist()
        self.values = sequence.values.tolist()
        self.random = random.Random(2)
        self.advance(FILL_VERSIONS)

    def advance(self, version):
        exp = math.exp
        level = [
            (base * exp((made - version) / AGE_DECAY)) ** EXPONENT
            for base, made in zip(self.bases, self.versions)
        ]
        levels = [level]
        while len(level) > 1:
            if len(level) % 2:
                level.append(0.0)
            level = list(map(add, level[::2], level[1::2]))
            levels.append(level)
        self.levels = levels

    def sample(self, size, beta):
        leaves, down = self.levels[0], self.levels[-2::-1]
        segment = self.levels[-1][0] / size
        uniform, last = self.random.random, len(self.bases) - 1
        indexes = []
        for i in range(size):
            mass = (i + uniform()) * segment
            node = 0
            for level in down:
                node *= 2
                left = level[node]
                if mass >= left:
                    mass -= left
                    node += 1
            indexes.append(min(node, last))  # rounding may lead into the padding
        drawn = [leaves[i] for i in indexes]
        least = min(drawn)
        return {"id": indexes, "indexes": indexes, "weights": [(p / least) ** -beta for p in drawn]}

    def update(self, indexes, values):
        # The refresh that follows puts them into the tree.
        bases = self.bases
        for i, value in zip(indexes, values):
            bases[i] = value + EPSILON


class PlainRefresh(LevelRefresh):
    """FreshPER's own order: a tree in one list, every leaf set by itself, log2 N additions for each of N leaves."""

    name = "plain refresh"

    def __init__(self, sequence):
        self.size = 1 << (sequence.n - 1).bit_length()
        self.tree = [0.0] * (2 * self.size)
        super().__init__(sequence)

    def advance(self, version):
        exp, tree, size = math.exp, self.tree, self.size
        for i, (base, made) in enumerate(zip(self.bases, self.versions)):
            node = size + i
            tree[node] = (base * exp((made - version) / AGE_DECAY)) ** EXPONENT
            node //= 2
            while node:
                tree[node] = tree[2 * node] + tree[2 * node + 1]
                node //= 2

    def sample(self, size, beta):
        tree, leaves = self.tree, self.size
        segment = tree[1] / size
        uniform, last = self.random.random, len(self.bases) - 1
        indexes = []
        for i in range(size):
            mass = (i + uniform()) * segment
            node = 1
            while node < leaves:
                node *= 2
                if mass >= tree[node]:
                    mass -= tree[node]
                    node += 1
            indexes.append(min(node - leaves, last))
        drawn = [tree[leaves + i] for i in indexes]
        least = min(drawn)
        return {"id": indexes, "indexes": indexes, "weights": [(p / least) ** -beta for p in drawn]}


class VectorRefresh:
    """The refresh and the descent as operations on whole arrays that are allocated once."""

    name = "vectorised refresh"
    age_decay = AGE_DECAY

    def __init__(self, sequence):
        self.bases = sequence.bases + EPSILON
        self.versions = sequence.versions.astype(np.float64)
        self.values = sequence.values
        self.random = np.random.default_rng(2)
        self.segments = np.arange(BATCH, dtype=np.float64)
        n = sequence.n
        self.levels = []
        while n > 1:
            n += n % 2
            self.levels.append(np.zeros(n))
            n //= 2
        self.levels.append(np.zeros(1))
        self.leaves = self.levels[0][: sequence.n]
        self.sums = [(x[::2], x[1::2], y[: len(x) // 2]) for x, y in zip(self.levels, self.levels[1:])]
        self.advance(FILL_VERSIONS)

    def advance(self, version):
        leaves = self.leaves
        np.subtract(self.versions, version, out=leaves)
        np.divide(leaves, AGE_DECAY, out=leaves)
        np.exp(leaves, out=leaves)
        np.multiply(leaves, self.bases, out=leaves)
        np.power(leaves, EXPONENT, out=leaves)
        for left, right, out in self.sums:
            np.add(left, right, out=out)

    def sample(self, size, beta):
        mass = self.random.random(size)
        mass += self.segments
        mass *= self.levels[-1][0] / size
        node = np.zeros(size, np.int64)
        for level in self.levels[-2::-1]:
            node *= 2
            left = level.take(node)
            right = mass >= left
            left *= right
            mass -= left
            node += right
        np.minimum(node, len(self.bases) - 1, out=node)
        drawn = self.leaves.take(node)
        drawn /= drawn.min()
        return {"id": node, "indexes": node, "weights": drawn**-beta}

    def update(self, indexes, values):
        self.bases[indexes] = values + EPSILON


class Cpprb:
    """cpprb's prioritized buffer of one field, the id by which a trainer finds the trajectory. It knows no age."""

    name = "cpprb"
    age_decay = math.inf

    def __init__(self, sequence):
        buffer = cpprb.PrioritizedReplayBuffer(
            sequence.n, {"id": {"dtype": np.int64}}, alpha=EXPONENT, eps=EPSILON
        )
        buffer.add(id=np.arange(sequence.n), priorities=sequence.bases)
        self.values = sequence.values
        self.sample, self.update = buffer.sample, buffer.update_priorities

    def advance(self, version):
        pass


class Trainer:
    """Takes a buffer through cycles: sample a batch, update its priorities, go to the next version."""

    def __init__(self, buffer):
        self.buffer = buffer
        self.name, self.age_decay = buffer.name, buffer.age_decay
        self.version, self.row = FILL_VERSIONS, 0

    def run(self, cycles):
        """Return the seconds spent in sample, update and advance by the clock, and in all by the processor."""
        sample, update, advance = self.buffer.sample, self.buffer.update, self.buffer.advance
        values, version, row = self.buffer.values, self.version, self.row
        sampling = updating = advancing = 0.0
        before = process_time()
        for _ in range(cycles):
            start = perf_counter()
            batch = sample(BATCH, BETA + BETA_SLOPE * version)
            sampled = perf_counter()
            update(batch["indexes"], values[row])
            updated = perf_counter()
            version += 1
            advance(version)
            advanced = perf_counter()
            sampling += sampled - start
            updating += updated - sampled
            advancing += advanced - updated
            row = (row + 1) % ROWS
        self.version, self.row = version, row
        return sampling, updating, advancing, process_time() - before

    def follow(self, cycles, bases):
        """Run cycles and keep bases, an array, as the updates make them."""
        for _ in range(cycles):
            batch = self.buffer.sample(BATCH, beta_at(self.version))
            values = self.buffer.values[self.row]
            self.buffer.update(batch["indexes"], values)
            for i, value in zip(batch["indexes"], values):
                bases[i] = value
            self.version += 1
            self.buffer.advance(self.version)
            self.row = (self.row + 1) % ROWS

    def draw(self, batches, n):
        """Draw without updates. Return how often each entry was drawn, and the first batch's entries and weights."""
        counts = np.zeros(n, np.int64)
        first = None
        for _ in range(batches):
            batch = self.buffer.sample(BATCH, beta_at(self.version))
            ids = np.asarray(batch["id"]).reshape(-1)
            if first is None:
                first = ids.copy(), np.array(batch["weights"], np.float64)
            np.add.at(counts, ids, 1)
        return counts, *first

    def close(self):
        pass
