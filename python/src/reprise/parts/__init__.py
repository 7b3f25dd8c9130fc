"""Tables in parts: one table over several services, each of which has a part as an ordinary table.

`reprise.connect` with several addresses returns this package's `Client`, whose `Table` has the methods of a single
service's. Nobody but the clients knows that the parts belong together, so every client names the services in the same
order.

- Groups go to a part by rendezvous hashing (`plan.order`), so that a part that is lost moves no other part's groups.
  Ids of the table have the number of the part in their top bits.
- Draws with scope ``own`` come from one part at a time, with scope ``global`` from all, with the law of one table that
  holds everything (`plan.divide`).
- A part that does not answer is down: calls go to the others, and it is asked again after a second. One that comes back
  gets the newest version, and its table if it lost it, before it is used.

`Services` has the connections, `Part` and `Parts` say where a table's parts are and which are up, `Insertion` and
`Exchanges` put rollouts in and draw batches, `Table` and `Client` have the methods.
"""

from .client import Client
from .table import Table

__all__ = ["Client", "Table"]
