"""The relay as an app of Flower: its public ServerApp and ClientApp, nothing else.

A message to a client starts a process there, which ends with its answer: so it waits for the
answer to what it brought. SuperNodes have random ids, and say their names.
"""

from __future__ import annotations

import time

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from .spool import Peer, Spool, SpoolError, answer

KIND, RECORD, BODY = "eigenveil", "eigenveil", "pieces"
LOST = 120  # seconds after which a message without an answer is sent again
client = ClientApp()
server = ServerApp()


@client.query(KIND)
def move(message: Message, context: Context) -> Message:
    """Beside a party: keeps what came, sends what waits."""
    try:
        config = context.node_config
        if "eigenveil-spool" not in config or "eigenveil-name" not in config:
            raise SpoolError("start the SuperNode with eigenveil-spool and eigenveil-name")
        spool = Spool(str(config["eigenveil-spool"]))
        body = answer(spool, message.content[RECORD][BODY], name=str(config["eigenveil-name"]))
        record = ConfigRecord({BODY: body})
    except (SpoolError, OSError) as error:
        record = ConfigRecord({"error": str(error)})
    return Message(content=RecordDict({RECORD: record}), reply_to=message)


@server.main()
def serve(grid: Grid, context: Context) -> None:
    """Beside the aggregator: one message at a time to each node, until the run is stopped."""
    config = context.run_config
    spool = Spool(str(config["spool"]))
    patience, idle = float(config["patience"]), float(config["idle"])
    desks: dict[int, Peer] = {}
    sent: dict[str, tuple[int, float]] = {}  # message -> node, since when
    looked = 0.0
    while True:
        now = time.monotonic()
        if now > looked + 2:
            spool.parts.joinpath("alive").touch()  # for flower_keep.py
            nodes, looked = set(grid.get_node_ids()), now
            desks = {n: desks.get(n) or Peer(spool, str(n), patience, idle) for n in nodes}
        sent = {m: s for m, s in sent.items() if s[0] in desks and now < s[1] + LOST}
        for node in desks.keys() - {node for node, _ in sent.values()}:
            if (body := desks[node].due()) is not None:
                message = Message(
                    content=RecordDict({RECORD: ConfigRecord({BODY: body})}),
                    message_type=f"query.{KIND}",
                    dst_node_id=node,
                    ttl=LOST,
                )
                for number in grid.push_messages([message]):
                    sent[number] = (node, now)
        for reply in grid.pull_messages(list(sent)) if sent else ():
            node, _ = sent.pop(reply.metadata.reply_to_message_id, (0, 0.0))
            if node in desks:
                _take(desks[node], reply)
        time.sleep(0.2)


def _take(desk: Peer, reply: Message) -> None:
    """A client's answer, or why there is none."""
    try:
        if not reply.has_content():
            raise SpoolError(str(reply.error.reason))
        record = reply.content[RECORD]
        if "error" in record:
            raise SpoolError(str(record["error"])[:500])
        desk.answered(record[BODY])
    except (SpoolError, OSError, KeyError) as error:
        print(f"eigenveil: from node {desk.peer} ({desk.recipient}): {error}", flush=True)
        desk.next = time.monotonic() + 5
