"""PromptBuffer: which prompts to generate for again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .connection import Connection
from .definition import TableInfo


@dataclass(frozen=True)
class Prompt:
    """A prompt to ask again.

    Attributes:
        id: its name, as of ``prompt_id``.
        ref: a number of the caller's own that came with its report, such as its row in a data set.
    """

    id: str
    ref: int = 0


@dataclass(frozen=True)
class PromptResult:
    """What came of asking a prompt.

    Attributes:
        id, ref: of the prompt.
        correct: answers that were right.
        total: answers.
        replayed: whether it was asked because the buffer said so.
    """

    id: str
    correct: int
    total: int
    ref: int = 0
    replayed: bool = False


class PromptBuffer:
    """Prompt replay beside a table, where it was defined with ``prompts``."""

    def __init__(self, connection: Connection, table: str) -> None:
        self._connection = connection
        self._table = table

    def next(self, batch: int) -> list[Prompt]:
        """Return prompts to ask again, at most the table's fraction of a batch of so many prompts."""
        # What was handed out is on cooldown: a repetition would lose prompts, so there is none.
        answer = self._connection.action("prompts_next", {"table": self._table, "batch": batch}, repeatable=False)
        return [Prompt(prompt["id"], prompt.get("ref", 0)) for prompt in answer.get("prompts") or []]

    def report(self, results: Iterable[PromptResult]) -> TableInfo:
        """Tell what came of prompts, new ones and replayed ones."""
        rows = [
            {"id": r.id, "ref": r.ref, "correct": r.correct, "total": r.total, "replayed": r.replayed} for r in results
        ]
        answer = self._connection.action("prompts_report", {"table": self._table, "results": rows}, repeatable=False)
        return TableInfo.of(answer)
