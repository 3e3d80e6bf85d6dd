"""The guard of a process on FLARE's network: it checks every message before FLARE reads it.

FLARE 2.9 lets every message that shows the server's token say of itself where it comes from, and
the token is in the reply to a question that anybody may ask. Here a message must come from whom the
certificate of its connection names, speak on the few channels that a study needs, and not be larger
than a message of a study can be. Nothing in eigenveil relies on it: what parties say to each other
is signed (:mod:`eigenveil.federation.protocol.envelope`). It keeps FLARE's own
services from requests in another's name, and large messages from being read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from nvflare.fuel.f3.cellnet.core_cell import make_reply
from nvflare.fuel.f3.cellnet.defs import (
    CellChannel,
    CellChannelTopic,
    Encoding,
    MessageHeaderKey,
    MessagePropKey,
    MessageType,
    ReturnCode,
)
from nvflare.fuel.f3.cellnet.fqcn import FQCN
from nvflare.fuel.f3.streaming.stream_const import (
    STREAM_CHANNEL,
    STREAM_DATA_TOPIC,
    StreamHeaderKey,
)
from nvflare.fuel.utils.admin_name_utils import is_valid_admin_client_name

from eigenveil.federation.protocol.envelope import MOST_BESIDE
from eigenveil.network.channel import (
    CHANNEL,
    MOST_OF_FLARE,
    MOST_SURVEYED,
    SURVEY,
    TOPIC,
    WHEREABOUTS,
)
from eigenveil.network.flare.job import is_job

Limit = Callable[[], int]
_log = logging.getLogger(__name__)
_NET = CellChannel.CELLNET
_ANSWERS = (MessageType.REPLY, MessageType.RETURN)
# What a site states to the aggregator's own process.
_OF_SITES = (
    CellChannelTopic.Challenge,
    CellChannelTopic.Register,
    CellChannelTopic.Quit,
    CellChannelTopic.HEART_BEAT,
    CellChannelTopic.REPORT_JOB_FAILURE,  # also how it states that a job is over for it
)


@dataclass(frozen=True)
class Sender:
    """Whom a message claims to be from.

    Attributes
    ----------
    peer, certified : str
        The other end of the connection: what it calls itself, and the name in its certificate.
    origin : str
        Who made the message, as the message states.
    """

    peer: str
    certified: str
    origin: str

    def __str__(self) -> str:
        return f"{self.origin[:80]!r}, brought by {self.peer[:80]!r} ({self.certified[:80]!r})"


class Guard:
    """Refuses messages by where they come from, where they go, their channel and their size.

    Parameters
    ----------
    host : str
        In the aggregator's certificate.
    limit : callable
        Most bytes of a message of a study, now.
    """

    def __init__(self, host: str, limit: Limit) -> None:
        self._host, self._limit = host, limit

    def watch(self, cell: Any) -> None:
        """Look at all that comes to a cell."""
        cell.core_cell.add_incoming_filter(channel="*", topic="*", cb=self._series_style)

    def _series_style(self, message: Any) -> Any:
        why = self.refusal(message)
        if not why:
            return None
        _log.warning("refused: %s", why)
        return make_reply(ReturnCode.UNAUTHENTICATED, "refused")

    def refusal(self, message: Any) -> str:
        """Why a message is refused; empty where it is not."""
        endpoint = message.get_prop(MessagePropKey.ENDPOINT)
        who = Sender(
            peer=str(getattr(endpoint, "name", "")),
            certified=str(message.get_prop(MessagePropKey.COMMON_NAME) or ""),
            origin=str(message.get_header(MessageHeaderKey.ORIGIN) or ""),
        )
        if not self._is_known(who):
            return f"a message of {who}"
        if not self._may_send(who, message):
            to = str(message.get_header(MessageHeaderKey.DESTINATION))[:80]
            return f"channel {_channel(message)[:80]!r} to {to!r} by {who}"
        return self._too_large(message)

    def _is_known(self, who: Sender) -> bool:
        """Whether a connection's peer is whom its certificate names, and speaks for itself."""
        raise NotImplementedError

    def _may_send(self, who: Sender, message: Any) -> bool:
        raise NotImplementedError

    def _too_large(self, message: Any) -> str:
        size = 0 if message.payload is None else len(message.payload)
        if size > MOST_OF_FLARE:
            return f"a message of {size} bytes"
        if _channel(message) != STREAM_CHANNEL:
            if _channel(message) == CHANNEL:
                return "a question past the channel's stream"
            return ""
        if message.get_header(MessageHeaderKey.TOPIC) != STREAM_DATA_TOPIC:
            return ""
        if not _is_ours(message):
            limit = MOST_OF_FLARE
        else:
            surveyed = _topic(message) in (SURVEY, f"{CHANNEL}:{SURVEY}")
            limit = MOST_BESIDE + MOST_SURVEYED if surveyed else self._limit()
            coded = message.get_header(StreamHeaderKey.PAYLOAD_ENCODING)
            if coded is not None and coded not in (Encoding.BYTES, Encoding.NONE):
                return "a message that is not bytes"
        size = message.get_header(StreamHeaderKey.SIZE)
        if size is None:  # an error or the like: it has no content
            return ""
        return "" if isinstance(size, int) and 0 <= size <= limit else f"a stream of {size!r} bytes"


class SiteGuard(Guard):
    """At a site or the helper: only the aggregator speaks here, of studies and of jobs."""

    def _is_known(self, who: Sender) -> bool:
        return (
            who.peer == FQCN.ROOT_SERVER and who.certified == self._host and _is_server(who.origin)
        )

    def _may_send(self, who: Sender, message: Any) -> bool:
        channel = _channel(message)
        if _is_answer(message) or channel in (_NET, STREAM_CHANNEL):
            return True
        return bool(channel == CellChannel.CLIENT_MAIN and who.origin == FQCN.ROOT_SERVER)


class AggregatorGuard(Guard):
    """At the aggregator's own process, through which all goes."""

    def _is_known(self, who: Sender) -> bool:
        if who.origin != who.peer:
            return False
        if is_valid_admin_client_name(who.peer):
            return "@" in who.certified  # no other party can be called so
        if _is_server(who.peer):
            return who.certified == self._host
        return who.certified == who.peer != self._host

    def _may_send(self, who: Sender, message: Any) -> bool:
        if _is_server(who.peer):
            return True
        to = str(message.get_header(MessageHeaderKey.DESTINATION) or "")
        channel, topic = _channel(message), message.get_header(MessageHeaderKey.TOPIC)
        if is_valid_admin_client_name(who.peer):
            mine = channel in (CellChannel.HCI, CellChannel.SERVER_MAIN, _NET, STREAM_CHANNEL)
            return to == FQCN.ROOT_SERVER and (mine or _is_answer(message))
        if not _is_server(to):
            return False  # one site to another
        if _is_answer(message) or channel == _NET:
            return True
        if channel == STREAM_CHANNEL:
            about = message.get_header(StreamHeaderKey.CHANNEL)
            queries = about == CHANNEL and to == FQCN.ROOT_SERVER
            return bool(topic != STREAM_DATA_TOPIC or about == CellChannel.RETURN_ONLY or queries)
        known = channel == CellChannel.SERVER_MAIN and topic in _OF_SITES
        return bool(known and to == FQCN.ROOT_SERVER)


class JobGuard(Guard):
    """At a job's process: only the aggregator's own process is connected to it."""

    def _is_known(self, who: Sender) -> bool:
        return _is_server(who.peer) and who.certified == self._host

    def _may_send(self, who: Sender, message: Any) -> bool:
        own = who.origin == FQCN.ROOT_SERVER
        return bool(own or _is_answer(message) or _channel(message) == STREAM_CHANNEL)


def _channel(message: Any) -> str:
    return str(message.get_header(MessageHeaderKey.CHANNEL) or "")


def _is_answer(message: Any) -> bool:
    return message.get_header(MessageHeaderKey.MSG_TYPE) in _ANSWERS


def _is_ours(message: Any) -> bool:
    """Whether a stream carries a question or an answer of a study."""
    channel = message.get_header(StreamHeaderKey.CHANNEL)
    of_study = tuple(f"{CHANNEL}:{each}" for each in (TOPIC, WHEREABOUTS, SURVEY))
    answers = channel == CellChannel.RETURN_ONLY and _topic(message) in of_study
    return channel == CHANNEL or answers


def _topic(message: Any) -> str:
    return str(message.get_header(StreamHeaderKey.TOPIC) or "")


def _is_server(name: str) -> bool:
    """Whether this is the aggregator's own process, or that of a job."""
    root, _, job = name.partition(".")
    return root == FQCN.ROOT_SERVER and (name == root or is_job(job))
