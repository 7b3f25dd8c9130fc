"""The replay service with stock pyarrow.flight alone.

    reprise serve &
    python flight_recipe.py grpc://127.0.0.1:7447

Creates a table, inserts 1,000 rollouts with the types that `pa.table` infers, samples, updates priorities, advances the
version and reads statistics. It compares every rollout that comes back with the one inserted, bit for bit. Requests and
answers other than record batches are JSON: `wire/messages.go` has their fields.
"""

import json
import random
import struct
import sys

import pyarrow as pa
import pyarrow.flight as flight

TABLE = "recipe"
ROLLOUTS = 1000
GROUP = 8  # rollouts of one prompt


def float32(x):
    """Return the nearest float32, so that comparisons are exact."""
    return struct.unpack("f", struct.pack("f", x))[0]


def make_rollouts(rng):
    """Return 1,000 rollouts as columns of lists."""
    rows = {
        name: [] for name in ("prompt_id", "group", "tokens", "mask", "logprobs", "versions", "reward", "truncated")
    }
    for i in range(ROLLOUTS):
        prompt, completion = rng.randint(1, 20), rng.randint(1, 200)
        length = prompt + completion
        rows["prompt_id"].append(f"prompt {i // GROUP}")
        rows["group"].append(i // GROUP)
        rows["tokens"].append([rng.randrange(50_000) for _ in range(length)])
        rows["mask"].append([0] * prompt + [1] * completion)
        rows["logprobs"].append([0.0] * prompt + [float32(-rng.expovariate(1)) for _ in range(completion)])
        rows["versions"].append([-1] * prompt + [0] * completion)
        rows["reward"].append(float(rng.random() < 0.5))
        rows["truncated"].append(completion == 200)
    return rows


def act(client, action, /, **body):
    """Call an action: a JSON object in, a JSON object out."""
    results = list(client.do_action(flight.Action(action, json.dumps(body).encode())))
    return json.loads(results[0].body.to_pybytes()) if results else {}


def insert(client, data):
    """Insert a table of pyarrow as one request, all or nothing, and return the ids of its rows."""
    writer, answers = client.do_put(flight.FlightDescriptor.for_path(TABLE), data.schema)
    with writer:  # if the insertion is refused, read returns None and close raises the reason
        for batch in data.combine_chunks().to_batches():
            # With a batch_id, a retry after a broken connection does not insert twice.
            writer.write_with_metadata(batch, json.dumps({"batch_id": "recipe 1"}).encode())
        writer.done_writing()
        answer = answers.read()
    return json.loads(answer.to_pybytes())["ids"]


def sample(client, size):
    """Draw a batch. It counts as used once it has arrived."""
    ticket = flight.Ticket(json.dumps({"table": TABLE, "size": size, "timeout_ms": 10_000}).encode())
    reader = client.do_get(ticket)
    chunk = reader.read_chunk()
    info = json.loads(chunk.app_metadata.to_pybytes())
    for _ in reader:  # reading to the end acknowledges the batch
        pass
    return chunk.data, info


def compare(drawn, rows, row_of):
    """Compare drawn rollouts with what was inserted."""
    for row in drawn.to_pylist():
        i = row_of[row["id"]]
        for name, values in rows.items():
            if name != "group":  # the table numbers groups itself
                assert row[name] == values[i], f"{name} of rollout {row['id']}: {row[name]} is not {values[i]}"


def main(address):
    rows = make_rollouts(random.Random(1))
    with flight.connect(address) as client:
        if any(info.descriptor.path == [TABLE.encode()] for info in client.list_flights()):
            act(client, "drop_table", table=TABLE)
        act(client, "create_table", name=TABLE, capacity=ROLLOUTS, sampler="prioritized")
        data = pa.table(rows)
        print(f"inserting {data.num_rows} rollouts as {', '.join(f'{f.name} {f.type}' for f in data.schema)}")
        ids = insert(client, data)
        assert len(ids) == ROLLOUTS
        row_of = {number: i for i, number in enumerate(ids)}

        drawn, info = sample(client, 64)
        compare(drawn, rows, row_of)
        print(f"sampled {drawn.num_rows} rollouts at version {info['version']}, as they were inserted")

        # One rollout gets all the priority, and so nearly all draws.
        chosen = ids[123]
        act(client, "update_priorities", table=TABLE, ids=ids, priorities=[1e6 if i == chosen else 0.0 for i in ids])
        again, _ = sample(client, 64)
        share = sum(number == chosen for number in again["id"].to_pylist()) / again.num_rows
        assert share > 0.9, f"rollout {chosen} has nearly all the priority, and is {share:.0%} of the batch"
        print(f"updated {len(ids)} priorities: rollout {chosen} is now {share:.0%} of a batch")

        advanced = act(client, "advance", table=TABLE, version=3)
        assert advanced["version"] == 3
        later, _ = sample(client, 8)
        assert later["staleness"].to_pylist() == [3] * 8
        print(f"advanced to version {advanced['version']}: rollouts are {later['staleness'][0]} versions stale")

        request = {"table": TABLE, "export": True, "size": 256}
        everything = client.do_get(flight.Ticket(json.dumps(request).encode())).read_all()
        assert everything["id"].to_pylist() == sorted(ids)
        compare(everything, rows, row_of)
        print(f"exported all {everything.num_rows}, as they were inserted")

        stats = act(client, "stats", table=TABLE)
        assert (stats["present"], stats["inserted"], stats["version"]) == (ROLLOUTS, ROLLOUTS, 3)
        assert stats["drawn"] == stats["acknowledged"] == 64 + 64 + 8
        print(f"statistics: {stats['present']} present, {stats['drawn']} drawn, {stats['acknowledged']} acknowledged")
        act(client, "drop_table", table=TABLE)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "grpc://127.0.0.1:7447")
