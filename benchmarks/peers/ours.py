"""Reprise's table, run by the Go program in ours/ on the same sequence."""

import json
import math
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np

from sequence import (
    AGE_DECAY, BETA, BETA_VERSIONS, EPSILON, EXPONENT, FILL_VERSIONS, GROUP,
)


class Ours:
    """A Go process that holds one table and answers a line of JSON for each line with a command.

    It stays alive between commands, so that rounds of it and of its peers can take turns.
    """

    name = "reprise"
    age_decay = AGE_DECAY

    def __init__(self, program, sequence):
        with tempfile.TemporaryDirectory() as folder:
            sequence.write(pathlib.Path(folder))
            settings = {
                "folder": folder, "group": GROUP, "version": FILL_VERSIONS, "epsilon": EPSILON, "exponent": EXPONENT,
                "age-decay": AGE_DECAY, "beta": BETA, "beta-versions": BETA_VERSIONS,
            }
            self.process = subprocess.Popen(
                [program, *(f"-{key}={value}" for key, value in settings.items())],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )
            hello = self.answer()  # the table is full, the files may go
        self.version, self.go = FILL_VERSIONS, hello["go"]

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"the Go program ended with code {self.process.wait()}; its message stands above")
        return json.loads(line)

    def ask(self, command, count):
        self.process.stdin.write(f"{command} {count}\n")
        self.process.stdin.flush()
        return self.answer()

    def run(self, cycles):
        before = self.processor_seconds()
        answer = self.ask("run", cycles)
        self.version = answer["version"]
        return answer["sample"], answer["update"], answer["advance"], self.processor_seconds() - before

    def processor_seconds(self):
        """Return what all threads of the Go process have used; not a number where only Linux could tell."""
        if sys.platform != "linux":
            return math.nan
        return time.clock_gettime(~self.process.pid << 3 | 2)  # clock_getcpuclockid(3)

    def follow(self, cycles, bases):
        answer = self.ask("follow", cycles)
        self.version = answer["version"]
        bases[:] = answer["bases"]

    def draw(self, batches, n):
        answer = self.ask("draw", batches)
        return np.array(answer["counts"]), np.array(answer["ids"]), np.array(answer["weights"])

    def close(self):
        self.process.stdin.close()
        self.process.wait()
