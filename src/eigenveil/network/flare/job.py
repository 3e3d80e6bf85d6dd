"""A study as a FLARE job: configuration only, made one way by the lead and read one way by sites.

A job is an application folder with two files. A site takes from it which study and which session
are meant, and nothing else: it compares every byte's meaning with what its own software would have
written. FLARE signs it with the lead's key of its connection; what counts is the order in it, which
the lead signed as every message is signed, with the key that the list of members has for it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from eigenveil.errors import DataError, EigenveilError, ProtocolError
from eigenveil.federation.protocol.messages import HELPER
from eigenveil.federation.protocol.terms import active_sites, settle
from eigenveil.federation.study.study import Study, parse_study
from eigenveil.federation.x509_identity import Identity
from eigenveil.network.flare.policies import CONTROLLER, EXECUTOR
from eigenveil.network.roles import check_site
from eigenveil.network.signed import check_order, members_of

APP = "app"
SERVER_CONFIG, CLIENT_CONFIG = "config_fed_server.json", "config_fed_client.json"
# The study in the job's meta data, for the owner to read before anything is deployed; and the run.
STUDY_PROPERTY, SESSION_PROPERTY = "eigenveil_study", "eigenveil_session"
LONGEST_TIMEOUT = 7 * 86400.0
_SESSION = re.compile(r"[0-9a-f]{24}")
_JOB = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


@dataclass(frozen=True)
class Ordered:
    """What makes a job the lead's.

    Attributes
    ----------
    lead : str
        As in its certificate.
    order : bytes
        :func:`eigenveil.network.signed.signed_order`.
    members : bytes
        The newest list of members that the lead has seen; empty without one.
    """

    lead: str
    order: bytes
    members: bytes


@dataclass(frozen=True)
class SignedJob:
    """What a lead signs.

    Attributes
    ----------
    study : Study
        With its protocol settled.
    session : str
        Names the run, 24 hexadecimal digits.
    timeout : float
        Seconds that a site has for an answer.
    lead : str
        Who signed it; empty where nobody has yet.
    """

    study: Study
    session: str
    timeout: float
    lead: str = ""


def parties_of(study: Study) -> tuple[str, ...]:
    """Who must take part beside the aggregator: the active sites, and a noise helper."""
    terms = settle(study)
    helper = (HELPER,) if terms.mask_kind == "helper" else ()
    return (*terms.names, *helper)


def fewest_parties(study: Study) -> int:
    """Parties without which a run cannot end well."""
    names = parties_of(study)
    lost = study.dropouts if len(active_sites(study)) > 1 else 0
    return len(names) - lost


def sign_job(study: Study, session: str, timeout: float) -> SignedJob:
    """An order that can be carried out.

    Raises
    ------
    DataError
        ``unsettled``, or naming what cannot be.
    """
    if study.protocol == "auto":
        raise DataError(
            f"Study {study.name!r} does not fix its protocol.",
            hint="Fix it first: sites approve exactly the study that is run.",
            code="unsettled",
        )
    for name in active_sites(study):
        check_site(name)
    if not 1 <= timeout <= LONGEST_TIMEOUT:
        raise DataError(
            f"timeout = {timeout:g} is not from 1 s to a week.",
            hint="Give the seconds that a site may take for one answer.",
            code="bad-timeout",
        )
    if not _SESSION.fullmatch(session):
        raise DataError("The name of the run is not valid.", code="bad-session")
    return SignedJob(study, session, float(timeout))


def is_job(text: str) -> bool:
    """Whether a text can be a job's name."""
    return bool(_JOB.fullmatch(text))


def is_session(text: str) -> bool:
    """Whether a text can be a run's name."""
    return bool(_SESSION.fullmatch(text))


def write_job(signed_job: SignedJob, ordered: Ordered, folder: Path) -> None:
    """Write the job that is submitted; FLARE adds the signatures that it wants."""
    config = folder / APP / "config"
    config.mkdir(parents=True)
    names = parties_of(signed_job.study)
    _write(
        folder / "meta.json",
        {
            "name": signed_job.study.name,
            "resource_spec": {},
            "deploy_map": {APP: ["server", *names]},
            "min_clients": fewest_parties(signed_job.study),
            "mandatory_clients": [name for name in names if name == HELPER],
            "custom_props": {
                STUDY_PROPERTY: signed_job.study.model_dump(mode="json"),
                SESSION_PROPERTY: signed_job.session,
            },
        },
    )
    _write(config / SERVER_CONFIG, server_config(signed_job, ordered))
    _write(config / CLIENT_CONFIG, client_config())


def server_config(signed_job: SignedJob, ordered: Ordered) -> dict[str, Any]:
    """What the aggregator runs."""
    arguments = {
        "study": signed_job.study.model_dump(mode="json"),
        "session": signed_job.session,
        "timeout": signed_job.timeout,
        "lead": ordered.lead,
        "order": ordered.order.hex(),
        "members": ordered.members.decode("ascii"),
    }
    return {
        "format_version": 2,
        "workflows": [{"id": "study", "path": CONTROLLER, "args": arguments}],
        "components": [],
    }


def client_config() -> dict[str, Any]:
    """What FLARE wants to see for a site; nothing of it runs there."""
    return {
        "format_version": 2,
        "executors": [{"tasks": ["none"], "executor": {"path": EXECUTOR, "args": {}}}],
        "components": [],
    }


def read_signed_job(app: Path, identity: Identity) -> SignedJob:
    """The order in a deployed application folder, if a lead signed it and it is nothing else.

    A newer list of members that it brings is taken over first: it may be the one that names the
    lead.

    Parameters
    ----------
    identity : Identity
        Of whoever reads it.

    Raises
    ------
    ProtocolError
        Saying what is wrong with the job.
    """
    from nvflare.lighter.tool_consts import NVFLARE_SIG_FILE, NVFLARE_SUBMITTER_CRT_FILE

    config = app / "config"
    marks = {NVFLARE_SIG_FILE, NVFLARE_SUBMITTER_CRT_FILE}
    found = {file.relative_to(app).as_posix() for file in app.rglob("*") if not file.is_dir()}
    found = {name for name in found if Path(name).name not in marks}
    if found != {f"config/{SERVER_CONFIG}", f"config/{CLIENT_CONFIG}"}:
        raise _refused("it does not have the files of an eigenveil job")
    if _read(config / CLIENT_CONFIG) != client_config():
        raise _refused("it requests something that is not eigenveil's")
    config_found = _read(config / SERVER_CONFIG)
    try:
        arguments = config_found["workflows"][0]["args"]
        ordered = Ordered(
            str(arguments["lead"]),
            bytes.fromhex(arguments["order"]),
            arguments["members"].encode("ascii"),
        )
        signed_job = sign_job(
            parse_study(arguments["study"]),
            str(arguments["session"]),
            float(arguments["timeout"]),
        )
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as problem:
        why = problem.message if isinstance(problem, EigenveilError) else "it names no study"
        raise _refused(why.rstrip(".")) from None
    if config_found != server_config(signed_job, ordered):
        raise _refused("it requests something that is not eigenveil's")
    study, session = signed_job.study.hash, signed_job.session
    try:
        if ordered.members:
            members_of(identity).adopt_newer(ordered.members)
        check_order(
            ordered.order,
            identity,
            ordered.lead,
            study=study,
            session=session,
            timeout=signed_job.timeout,
        )
    except EigenveilError as problem:
        raise _refused(problem.message.rstrip(".")) from None
    return replace(signed_job, lead=ordered.lead)


def read_proposal(meta: object) -> Study | None:
    """The study that a job's meta data speak of, where they do."""
    try:
        study = parse_study(meta["custom_props"][STUDY_PROPERTY])  # type: ignore[index]
    except (KeyError, TypeError, ValueError):
        return None
    return None if study.protocol == "auto" else study


def read_session(meta: Mapping[str, Any]) -> str:
    """The run's name in a job's meta data; empty where there is none."""
    session = (meta.get("custom_props") or {}).get(SESSION_PROPERTY, "")
    return session if isinstance(session, str) and is_session(session) else ""


def _write(file: Path, content: dict[str, Any]) -> None:
    file.write_text(json.dumps(content), encoding="utf-8")


def _read(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        raise _refused("it cannot be read") from None


def _refused(why: str) -> ProtocolError:
    return ProtocolError(
        f"A job was refused: {why}.",
        hint="Only studies that a lead submits with 'eigenveil study run' are admitted.",
        code="job-refused",
    )
