"""Kits between organisations, without NVIDIA FLARE: what parties may do, and folders."""

import base64
import json
import multiprocessing
import shutil
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from eigenveil.errors import DataError, EigenveilError, OutputError
from eigenveil.federation.study.study import make_study
from eigenveil.federation.x509_identity import role_extension
from eigenveil.network import certificates
from eigenveil.network.enrolment import REQUEST_FORMAT, begin, package, read_request, request
from eigenveil.network.flare.authority import need_flare
from eigenveil.network.flare.policies import FLARE_ROLES, policies, startup
from eigenveil.network.folders import new_folder
from eigenveil.network.kit import FILE, Kit, describe, lock, open_kit, prepare, write_config
from eigenveil.network.roles import check_host, check_port, check_site, check_user
from eigenveil.network.x509_members import (
    Member,
    MemberList,
    federation_of,
    sign_members,
)
from eigenveil.network.x509_registrar import parties

SERVICES = ("site", "helper", "aggregator")
# What FLARE 2.9 keeps to itself of a site's settings; the rest goes to the aggregator.
NOT_SENT = {
    "format_version",
    "client",
    "servers",
    "components",
    "handlers",
    "class_allow_list",
    "class_list_enforcement_mode",
    "snapshot_persistor",
    "admin",
    "relay_config",
    "overseer_agent",
}


def study(**changes):
    fields = {"name": "trial", "features": 5, "components": 2}
    fields |= {"sites": tuple({"name": name} for name in ("north", "south", "west"))}
    return make_study(**(fields | changes))


@pytest.fixture(scope="module")
def keys():
    return [certificates.new_key(2048) for _ in range(3)]


def signed(name, key, by, *, issuer="trial", start=-1, days=30, ca=False, role="site"):
    """A certificate with just what our checks look at."""
    now = datetime.now(UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + timedelta(days=start))
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
    )
    usage = [ExtendedKeyUsageOID.CLIENT_AUTH]
    if role == "aggregator":
        usage.append(ExtendedKeyUsageOID.SERVER_AUTH)
    if not ca:
        built = built.add_extension(x509.ExtendedKeyUsage(usage), critical=False)
        built = built.add_extension(role_extension(role), critical=False)
    return built.sign(by, hashes.SHA256())


def make_kit(folder, keys, *, role="site", name="north", **dates):
    """A whole kit: the first key is the root's, the second the party's."""
    kit = Kit(folder, role, name, "org", "localhost", 8102, "trial")
    kit.startup.mkdir(parents=True)
    certificates.write_key(kit.key, keys[1])
    kit.certificate.write_bytes(
        certificates.pem(signed(name, keys[1], keys[0], role=role, **dates))
    )
    root = signed("trial", keys[0], keys[0], ca=True)
    kit.root_certificate.write_bytes(certificates.pem(root))
    (folder / FILE).write_text(json.dumps(describe(kit)))
    write_config(kit)
    return open_kit(folder)


# -- what a party may do


@pytest.mark.parametrize(
    ("role", "classes"),
    [
        ("site", ["eigenveil.network.flare.executor.SiteExecutor"]),
        ("helper", ["eigenveil.network.flare.executor.SiteExecutor"]),
        ("aggregator", ["eigenveil.network.flare.controller.StudyController"]),
    ],
)
def test_a_job_may_name_one_class_and_nothing_else(role, classes, tmp_path):
    resources = policies(role, tmp_path)["resources.json"]
    assert resources["class_list_enforcement_mode"] == "enforce"
    assert resources["class_allow_list"] == classes
    assert not any(name.endswith(".") or "*" in name for name in resources["class_allow_list"])


@pytest.mark.parametrize("role", SERVICES)
def test_nobody_brings_code_runs_commands_or_reads_files(role, tmp_path):
    rights = policies(role, tmp_path)["authorization.json"]["permissions"]
    assert set(rights) == set(FLARE_ROLES) == {"project_admin", "org_admin", "lead", "member"}
    for name, allowed in rights.items():
        assert isinstance(allowed, dict), name  # a word alone would hold for every right
        never = ("byoc", "shell_commands", "operate", "clone_job", "server-predeployed-flwr")
        assert {allowed[right] for right in never} == {"none"}, name
        if name != "lead":
            assert set(allowed.values()) == {"none"}, name
    lead = {right: who for right, who in rights["lead"].items() if who != "none"}
    assert lead == {"submit_job": "any", "manage_job": "n:submitter", "view": "any"}


@pytest.mark.parametrize("role", ["site", "helper"])
def test_nothing_of_a_site_is_sent_to_the_aggregator(role, tmp_path):
    settings = startup(role, "north", "localhost", 8102, "trial")
    settings |= policies(role, tmp_path)["resources.json"]
    sent = {name: value for name, value in settings.items() if name not in NOT_SENT}
    assert sent == {"allow_log_streaming": False, "require_signed_jobs": True}
    assert str(tmp_path) not in json.dumps(settings)


@pytest.mark.parametrize("role", SERVICES)
def test_jobs_are_signed_and_everybody_is_authenticated(role):
    content = startup(role, "north", "localhost", 8102, "trial")
    assert content["require_signed_jobs"] is True
    who = content["servers"][0] if role == "aggregator" else content["client"]
    assert who["connection_security"] == "mtls"
    admin = startup("lead", "lead@x.org", "localhost", 8102, "trial")["admin"]
    assert admin["connection_security"] == "mtls"


def test_the_parts_of_a_site_are_eigenveils_own(tmp_path):
    parts = {
        part["id"]: part["path"]
        for part in policies("site", tmp_path)["resources.json"]["components"]
    }
    assert parts["process_launcher"] == "eigenveil.network.flare.launcher.NoProcessLauncher"
    assert parts["eigenveil_party"] == "eigenveil.network.flare.party.ResidentParty"
    assert parts["eigenveil_approval"] == "eigenveil.network.flare.approval.Approval"
    assert not any("log" in path.rpartition(".")[2].lower() for path in parts.values())


def test_stores_are_in_the_kit_and_owners_have_time(tmp_path):
    resources = policies("aggregator", tmp_path)["resources.json"]
    assert "/tmp/nvflare" not in json.dumps(resources)
    parts = {part["id"]: part for part in resources["components"]}
    assert parts["job_manager"]["args"]["uri_root"] == str(tmp_path / "jobs")
    storage = resources["snapshot_persistor"]["args"]["storage"]
    assert storage["args"]["root_dir"] == str(tmp_path / "snapshots")
    times = parts["job_scheduler"]["args"]
    assert times["max_schedule_count"] * times["min_schedule_interval"] > 20 * 86400
    assert resources["servers"][0]["heart_beat_timeout"] == 30
    assert "log_receiver" not in parts


# -- kits


@pytest.mark.parametrize(
    ("role", "name"),
    [
        ("site", "north"),
        ("helper", "helper"),
        ("aggregator", "localhost"),
        ("lead", "lead@eigenveil.local"),
    ],
)
def test_a_kit_is_read_as_it_was_written(role, name, keys, tmp_path):
    made = make_kit(tmp_path / "kit", keys, role=role, name=name)
    assert (made.role, made.name, made.org, made.host, made.port) == (
        role,
        name,
        "org",
        "localhost",
        8102,
    )
    prepare(made)
    assert open_kit(made.folder, role=role) == made
    assert made.key.stat().st_mode & 0o777 == 0o600
    for part in (made.startup, made.local, made.state):
        assert part.is_dir()
    assert made.results.is_dir() == (role == "aggregator")
    assert made.decided.is_dir() == made.waiting.is_dir() == (role in ("site", "helper"))


def test_a_moved_kit_names_its_new_place(keys, tmp_path):
    made = make_kit(tmp_path / "first place", keys, role="aggregator", name="localhost")
    (made.results / "old").mkdir()
    shutil.move(made.folder, tmp_path / "second place")
    moved = open_kit(tmp_path / "second place")
    prepare(moved)
    text = (moved.local / "resources.json").read_text()
    assert str(tmp_path / "second place" / "jobs") in text
    assert "first place" not in text
    assert (moved.results / "old").is_dir()


def test_what_was_changed_or_slipped_in_is_put_right(keys, tmp_path):
    kit = make_kit(tmp_path / "kit", keys)
    authorization = kit.local / "authorization.json"
    right = authorization.read_text()
    authorization.write_text(right.replace('"byoc": "none"', '"byoc": "any"'))
    (kit.startup / "start.sh").write_text("python -m nvflare")
    (kit.local / "custom").mkdir()
    (kit.local / "custom" / "evil.py").write_text("")
    kit.key.chmod(0o644)
    (kit.decided / "00.json").write_text("{}")
    prepare(kit)
    assert authorization.read_text() == right
    assert not (kit.startup / "start.sh").exists()
    assert not (kit.local / "custom").exists()
    assert kit.key.stat().st_mode & 0o777 == 0o600
    assert (kit.decided / "00.json").exists()


def test_wrong_kits_are_refused_in_words(keys, tmp_path):
    def code(path, **target):
        with pytest.raises(EigenveilError) as caught:
            open_kit(path, **target)
        assert caught.value.hint
        return caught.value.code

    kit = make_kit(tmp_path / "kit", keys)
    assert code(tmp_path / "absent") == "no-kit"
    assert code(tmp_path) == "no-kit"
    assert code(kit.folder, role="aggregator") == "other-role"
    description = (kit.folder / FILE).read_text()
    for text, expected in [
        ("{", "bad-kit"),
        ("[]", "bad-kit"),
        ("{}", "bad-kit"),
        (description.replace("8102", '"many"'), "bad-kit"),
        (description.replace('"site"', '"king"'), "bad-kit"),
        (description.replace('"site"', "[]"), "bad-kit"),
        (description.replace("kit-1", "kit-2"), "other-format"),
    ]:
        (kit.folder / FILE).write_text(text)
        assert code(kit.folder) == expected, text
    (kit.folder / FILE).write_text(description)
    kit.root_certificate.unlink()
    assert code(kit.folder) == "kit-incomplete"


def _hold(folder, held, done):
    with lock(open_kit(folder)):
        held.set()
        done.wait(20)


def test_one_process_at_a_time_runs_from_a_kit(keys, tmp_path):
    kit = make_kit(tmp_path / "kit", keys)
    for _ in range(2):
        with lock(kit):
            pass
    context = multiprocessing.get_context("spawn")
    held, done = context.Event(), context.Event()
    other = context.Process(target=_hold, args=(kit.folder, held, done))
    other.start()
    try:
        assert held.wait(20)
        with pytest.raises(OutputError, match="in use") as caught, lock(kit):
            pass
        assert caught.value.code == "kit-in-use"
    finally:
        other.kill()  # as a crash would: the lock goes with it
        other.join()
    with lock(kit):
        pass


# -- certificates


@pytest.mark.parametrize(
    ("dates", "expected"),
    [
        ({"start": -20, "days": -1}, "certificate-expired"),
        ({"start": 1}, "certificate-early"),
        ({"issuer": "another"}, "foreign-certificate"),
    ],
)
def test_a_certificate_that_connects_nobody_is_refused_at_the_start(
    dates, expected, keys, tmp_path
):
    kit = make_kit(tmp_path / "kit", keys, **dates)
    with pytest.raises(DataError) as caught:
        prepare(kit)
    assert caught.value.code == expected


def test_someone_elses_certificate_is_refused(keys, tmp_path):
    kit = make_kit(tmp_path / "kit", keys)
    for certificate, expected in [
        (signed("north", keys[1], keys[2]), "foreign-certificate"),  # the name of the root is right
        (signed("south", keys[1], keys[0]), "other-name"),
        (signed("north", keys[2], keys[0]), "other-key"),
    ]:
        kit.certificate.write_bytes(certificates.pem(certificate))
        with pytest.raises(DataError) as caught:
            prepare(kit)
        assert caught.value.code == expected
    kit.certificate.write_text("nothing")
    with pytest.raises(DataError) as caught:
        prepare(kit)
    assert caught.value.code == "bad-certificate"


def test_fingerprints_are_compared_however_they_are_written(keys):
    text = certificates.fingerprint(keys[0].public_key())
    assert text.startswith("SHA256:")
    plain = text.removeprefix("SHA256:")
    for same in (plain, plain.replace(":", ""), text.lower(), plain.replace(":", " ")):
        assert certificates.same_fingerprint(text, same)
    assert not certificates.same_fingerprint(text, "")
    assert not certificates.same_fingerprint(text, text[:-1])


# -- names and requests


def test_parties_of_a_study():
    found = parties(study(), "host.example.org")
    assert found == {
        "north": ("site", "north"),
        "south": ("site", "south"),
        "west": ("site", "west"),
        "aggregator": ("aggregator", "host.example.org"),
        "lead": ("lead", "lead@eigenveil.local"),
    }
    assert list(parties(study(protocol="local"), "h")) == ["north", "aggregator", "lead"]
    assert parties(study(masks="helper"), "h")["helper"] == ("helper", "helper")


@pytest.mark.parametrize(
    ("names", "host", "expected"),
    [
        (["a", "Aggregator"], "h", "reserved-name"),
        (["a", "lead"], "h", "reserved-name"),
        (["a", "registrar"], "h", "reserved-name"),
        (["a", "helper"], "h", "reserved-name"),
        (["a", "server"], "h", "reserved-name"),
        (["a", "north.de"], "h", "bad-site-name"),
        (["a", "A"], "h", "same-name"),
        (["a", "host"], "Host", "same-name"),
        (["a", "b"], "a_b", "bad-host"),
        (["a", "b"], "", "bad-host"),
        (["a", "b"], "a" * 64, "bad-host"),
    ],
)
def test_names_that_cannot_be(names, host, expected):
    with pytest.raises(DataError) as caught:
        parties(study(sites=tuple({"name": name} for name in names)), host)
    assert caught.value.code == expected


def test_what_can_be_a_name():
    for host in ("localhost", "a.b-c.org", "10.0.0.1"):
        assert check_host(host) == host
    assert check_site("North_1-b") == "North_1-b"
    assert check_user("a.b@c.org") == "a.b@c.org"
    for port in (0, 65536, -1):
        with pytest.raises(DataError):
            check_port(port)
    for name in ("lead", "lead@host", "a b@c.org", "a@c.org\n"):
        with pytest.raises(DataError):
            check_user(name)


def test_a_request_keeps_the_key_at_home(tmp_path):
    file = request(study(), tmp_path / "kit", role="site", name="north")
    found = read_request(file)
    assert (found.project, found.role, found.name, found.org) == ("trial", "site", "north", "north")
    key = tmp_path / "kit" / "startup" / "client.key"
    assert key.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "kit").stat().st_mode & 0o777 == 0o700
    assert "PRIVATE" not in file.read_text()
    with pytest.raises(OutputError, match="not packaged yet") as caught:
        open_kit(tmp_path / "kit")
    assert caught.value.code == "kit-incomplete"


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ({"role": "site"}, "no-name"),
        ({"role": "site", "name": "east"}, "not-in-study"),
        ({"role": "site", "name": "lead"}, "reserved-name"),
        ({"role": "aggregator"}, "no-name"),
        ({"role": "aggregator", "name": "a b"}, "bad-host"),
        ({"role": "lead", "name": "boss"}, "bad-lead-name"),
        ({"role": "helper"}, "no-helper"),
        ({"role": "registrar"}, "other-role"),
    ],
)
def test_requests_that_cannot_be(target, expected, tmp_path):
    with pytest.raises(DataError) as caught:
        request(study(), tmp_path / "kit", **target)
    assert caught.value.code == expected
    assert not any(tmp_path.iterdir())


def test_a_changed_request_is_refused(tmp_path):
    file = request(study(), tmp_path / "kit", role="site", name="north")
    fields = json.loads(file.read_text())
    key = (tmp_path / "kit" / "startup" / "client.key").read_text()
    for change, expected in [
        ({"name": "south"}, "bad-request"),
        ({"org": "south"}, "bad-request"),
        ({"csr": "x"}, "bad-request"),
        ({"csr": 5}, "bad-request"),
        ({"format": "x"}, "bad-file"),
        ({"key": key}, "key-sent"),
    ]:
        file.write_text(json.dumps(fields | change))
        with pytest.raises(DataError) as caught:
            read_request(file)
        assert caught.value.code == expected, change
    file.write_text(" " * 200_000)
    with pytest.raises(DataError):
        read_request(file)


def _approval(kit, keys, **changes):
    """An approval as the registrar would write it, but for changes."""
    root = signed("trial", keys[0], keys[0], ca=True)
    own = signed(kit.name, certificates.read_key(kit.key), keys[0], role=kit.role)
    fields = {
        "format": "eigenveil-approval-1",
        "project": "trial",
        "role": "site",
        "name": "north",
        "org": "north",
        "host": "agg.example.org",
        "port": 9000,
        "certificate": certificates.pem(own).decode(),
        "root": certificates.pem(root).decode(),
    }
    first = MemberList(
        project="trial",
        federation=federation_of(root),
        number=1,
        time=datetime.now(UTC),
        parties=(Member(role="site", name="north"),),
    )
    fields["members"] = sign_members(first, keys[0]).line().decode()
    return fields | changes, certificates.fingerprint(root)


def test_package_completes_a_kit_or_leaves_it_open(keys, tmp_path):
    request(study(), tmp_path / "kit", role="site", name="north")
    kit = Kit(tmp_path / "kit", "site", "north", "north", "", 0, "trial")
    file = tmp_path / "approval.json"
    stranger = signed("north", keys[1], keys[0])
    old = signed("north", certificates.read_key(kit.key), keys[0], start=-9, days=-1)
    foreign = signed("north", certificates.read_key(kit.key), keys[2])
    for change, expected in [
        ({"name": "south"}, "other-approval"),
        ({"project": "x"}, "other-approval"),
        ({"members": "{}"}, "bad-members"),
        ({"members": None}, "bad-approval"),
        ({"role": "lead"}, "other-approval"),
        ({"host": "a b"}, "bad-host"),
        ({"port": 0}, "bad-port"),
        ({"port": None}, "bad-approval"),
        ({"certificate": None}, "bad-approval"),
        ({"certificate": "x"}, "bad-certificate"),
        ({"certificate": certificates.pem(stranger).decode()}, "other-key"),
        ({"certificate": certificates.pem(old).decode()}, "certificate-expired"),
        ({"certificate": certificates.pem(foreign).decode()}, "foreign-certificate"),
    ]:
        fields, mark = _approval(kit, keys, **change)
        file.write_text(json.dumps(fields))
        with pytest.raises(EigenveilError) as caught:
            package(kit.folder, file, fingerprint=mark)
        assert caught.value.code == expected, change
        assert not kit.certificate.exists()
    fields, mark = _approval(kit, keys)
    file.write_text(json.dumps(fields))
    with pytest.raises(DataError) as caught:
        package(kit.folder, file, fingerprint=certificates.fingerprint(foreign))
    assert caught.value.code == "other-fingerprint"
    done = package(kit.folder, file, fingerprint=mark)
    assert (done.host, done.port) == ("agg.example.org", 9000)
    prepare(done)
    assert not (done.folder / "north-request.json").exists()


# -- folders, whole or not at all


def test_a_folder_is_made_whole_or_not_at_all(tmp_path):
    def fail():
        with new_folder(tmp_path / "a" / "kits", overwrite=False) as scratch:
            (scratch / "x").write_text("")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert list((tmp_path / "a").iterdir()) == []
    with new_folder(tmp_path / "kits", overwrite=False) as scratch:
        (scratch / "x").write_text("")
        assert scratch.stat().st_mode & 0o777 == 0o700
    assert [file.name for file in (tmp_path / "kits").iterdir()] == ["x"]


def test_only_kits_are_replaced_and_only_where_asked(keys, tmp_path):
    kits = tmp_path / "kits"
    kit = make_kit(kits / "north", keys)

    def attempt(*, overwrite):
        with new_folder(kits, overwrite=overwrite) as scratch:
            begin("trial", scratch, role="site", name="north")

    def refusal(*, overwrite):
        with pytest.raises(OutputError) as caught:
            attempt(overwrite=overwrite)
        assert kit.certificate.exists()
        return caught.value.code

    assert refusal(overwrite=False) == "output-exists"
    (kits / "rows.parquet").write_text("dear")
    assert refusal(overwrite=True) == "not-kits"
    (kits / "rows.parquet").unlink()
    with lock(kit):
        assert refusal(overwrite=True) == "kit-in-use"
    attempt(overwrite=True)
    assert (kits / FILE).exists()
    assert not (kits / "north").exists()
    assert [file.name for file in tmp_path.iterdir()] == ["kits"]
    (tmp_path / "link").symlink_to(kits)
    with pytest.raises(OutputError), new_folder(tmp_path / "link", overwrite=True):
        pass


def test_without_flare_it_is_said_how_to_get_it(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(OutputError, match="not installed") as caught:
        need_flare()
    assert caught.value.hint == "pip install 'eigenveil[flare]'"


def test_a_request_that_is_damaged_anywhere_is_refused(tmp_path):
    """Each bit of its first bytes, which say what it is: some make a version that there is not."""
    asked = certificates.new_request(certificates.new_key(2048), "north", "org")
    der = x509.load_pem_x509_csr(asked.encode()).public_bytes(Encoding.DER)
    fields = {"format": REQUEST_FORMAT, "project": "p", "role": "site", "name": "north"}
    file = tmp_path / "request.json"
    for place in range(8 * 32):
        damaged = bytearray(der)
        damaged[place // 8] ^= 1 << place % 8
        body = base64.encodebytes(damaged).decode()
        text = f"-----BEGIN CERTIFICATE REQUEST-----\n{body}-----END CERTIFICATE REQUEST-----\n"
        file.write_text(json.dumps(fields | {"org": "org", "csr": text}))
        with pytest.raises(DataError, match="not a complete request"):
            read_request(file)
