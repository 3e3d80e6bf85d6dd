"""A study as a FLARE job: configuration only, made one way by the lead and read one way by sites.

A job is an application folder with two files, signed by the lead. A site takes from it which study
and which session are meant, and nothing else: it compares every byte's meaning with what its own
software would have written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from eigenveil.errors import DataError, EigenveilError, ProtocolError
from eigenveil.federation.identity import Membership
from eigenveil.federation.protocol.messages import HELPER
from eigenveil.federation.protocol.terms import active_sites, settle
from eigenveil.federation.study.study import Study, parse_study
from eigenveil.network.certificates import check_certificate, common_name, read_certificate
from eigenveil.network.flare.policies import CONTROLLER, EXECUTOR
from eigenveil.network.roles import check_site

APP = "app"
SERVER_CONFIG, CLIENT_CONFIG = "config_fed_server.json", "config_fed_client.json"
# The study in the job's meta data, for the owner to read before anything is deployed; and the run.
STUDY_PROPERTY, SESSION_PROPERTY = "eigenveil_study", "eigenveil_session"
LONGEST_TIMEOUT = 7 * 86400.0
_SESSION = re.compile(r"[0-9a-f]{24}")
_JOB = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


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


def write_job(signed_job: SignedJob, folder: Path) -> None:
    """Write the job that is submitted; FLARE adds the signatures."""
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
    _write(config / SERVER_CONFIG, server_config(signed_job))
    _write(config / CLIENT_CONFIG, client_config())


def server_config(signed_job: SignedJob) -> dict[str, Any]:
    """What the aggregator runs."""
    arguments = {
        "study": signed_job.study.model_dump(mode="json"),
        "session": signed_job.session,
        "timeout": signed_job.timeout,
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


def read_signed_job(
    app: Path, root_certificate: Path, members: Membership | None = None
) -> SignedJob:
    """The order in a deployed application folder, if a lead signed it and it is nothing else.

    Raises
    ------
    ProtocolError
        Saying what is wrong with the job.
    """
    from nvflare.lighter.tool_consts import NVFLARE_SIG_FILE, NVFLARE_SUBMITTER_CRT_FILE
    from nvflare.lighter.utils import verify_folder_signature_and_get_signers

    good, signers = verify_folder_signature_and_get_signers(str(app), str(root_certificate))
    if not good or not signers:
        raise _refused("its signature does not hold")
    if any(role != "lead" for _, _, role in signers):
        raise _refused("its signer is not a lead")
    root = read_certificate(root_certificate)
    leads = set()
    for file in app.rglob(NVFLARE_SUBMITTER_CRT_FILE):
        shown = read_certificate(file)
        try:  # FLARE does not look at the role's extension: an aggregator's certificate passes it
            check_certificate(shown, root, origin="its signer", role="lead")
            if members is not None:
                members.check(role="lead", name=common_name(shown), serial=shown.serial_number)
        except EigenveilError as problem:
            raise _refused(problem.message.rstrip(".")) from None
        leads.add(common_name(shown))
    if len(leads) != 1:
        raise _refused("it has more than one signer")
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
        signed_job = sign_job(
            parse_study(arguments["study"]),
            str(arguments["session"]),
            float(arguments["timeout"]),
        )
    except (KeyError, IndexError, TypeError, ValueError) as problem:
        why = problem.message if isinstance(problem, EigenveilError) else "it names no study"
        raise _refused(why.rstrip(".")) from None
    if config_found != server_config(signed_job):
        raise _refused("it requests something that is not eigenveil's")
    return replace(signed_job, lead=leads.pop())


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
