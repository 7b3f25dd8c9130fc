"""Pump: the thread to which an exchange belongs."""

from __future__ import annotations

import atexit
import os
import queue
import threading

from . import errors
from .connection import GRACE, Connection
from .exchange import Exchange, Item

WATCH = 1.0  # seconds between two looks at a request that is not answered


class Pump:
    """Fetches batches on a thread of its own, so many ahead of who takes them.

    The thread ends before the interpreter does: one that came back from the network into an interpreter that is being
    taken apart would crash or block it.
    """

    def __init__(self, connection: Connection, exchange: Exchange, ahead: int) -> None:
        self._connection = connection
        self._exchange = exchange
        self._ahead = ahead
        self._ordered = 0  # batches that were ordered and not taken
        self._orders: queue.SimpleQueue[bool] = queue.SimpleQueue()  # False: enough
        self._items: queue.SimpleQueue[Item] = queue.SimpleQueue()
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._run, name="reprise-prefetch", daemon=True)
        connection.dependents.add(self)
        atexit.register(self.stop)
        self._thread.start()
        self._order(ahead)

    def _run(self) -> None:
        try:
            with self._connection.using():
                self._fetch()
        except errors.Unavailable:
            pass  # the client was closed before
        finally:
            self._items.put(errors.Unavailable("the stream was closed"))
            atexit.unregister(self.stop)

    def _fetch(self) -> None:
        try:
            while self._orders.get():
                self._items.put(self._exchange.fetch())
        finally:
            self._exchange.hang_up()

    def _order(self, ahead: int) -> None:
        while self._ordered < ahead:
            self._ordered += 1
            self._orders.put(True)

    def take(self) -> Item:
        """Return the next batch that is still on lease, or what went wrong. It can be interrupted."""
        while True:
            self._order(max(self._ahead, 1))
            item = self._wait()
            self._ordered -= 1
            self._order(self._ahead)
            if isinstance(item, Exception) or self._exchange.current(item):
                return item

    def _wait(self) -> Item:
        while True:
            alive = self._thread.is_alive()
            try:
                return self._items.get(timeout=WATCH if alive else 0)
            except queue.Empty:
                if not alive:
                    return errors.Unavailable("the stream was closed")
            self._exchange.cancel_if_silent()

    def halt(self) -> None:
        """Have the thread hang up and end, what it waits for being cancelled. Finalizers may call it."""
        if os.getpid() != self._process:
            return  # after a fork, the thread and the connection are the parent's
        self._exchange.stop()
        self._orders.put(False)
        self._exchange.cancel()

    def stop(self) -> None:
        """End the thread, and with it the exchange."""
        self.halt()
        if os.getpid() == self._process and self._thread is not threading.current_thread():
            self._thread.join(timeout=GRACE)
