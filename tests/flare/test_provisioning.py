"""Keys and kits, central and distributed, against FLARE's own tools."""

import base64
import json
import os
import socket
import ssl
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509 import BasicConstraints, ExtendedKeyUsage, SubjectAlternativeName
from cryptography.x509.oid import ExtendedKeyUsageOID

from eigenveil.errors import DataError, OutputError
from eigenveil.federation.study.file import write_toml
from eigenveil.federation.study.study import make_study
from eigenveil.network.certificates import (
    fingerprint,
    new_key,
    pem,
    read_certificate,
    read_key,
    role_name,
    write_key,
)
from eigenveil.network.enrolment import package, request
from eigenveil.network.flare import authority
from eigenveil.network.flare.provision import provision
from eigenveil.network.kit import FILE, open_kit, prepare
from eigenveil.network.signed import known_members
from eigenveil.network.x509_members import FILE as MEMBERS
from eigenveil.network.x509_members import (
    KnownMembers,
    Member,
    MemberList,
    federation_of,
    sign_members,
    write_members,
)
from eigenveil.network.x509_registrar import approve, make_registrar

pytest.importorskip("nvflare", reason="NVIDIA FLARE is not installed: pip install '.[flare]'")

SITES = ("north", "south", "west")
HOST, PORT = "localhost", 8102
ROLES = {
    **dict.fromkeys(SITES, ("site", "client")),
    "helper": ("helper", "client"),
    "aggregator": ("aggregator", "server"),
    "lead": ("lead", "lead"),
}


def study(**changes):
    fields = {"name": "trial", "features": 5, "components": 2, "masks": "helper"} | changes
    return make_study(**fields, sites=tuple({"name": name} for name in SITES))


@pytest.fixture(scope="module", autouse=True)
def home(tmp_path_factory):
    """FLARE must leave nothing in a person's home, nor in the system's temporary folder."""
    place = tmp_path_factory.mktemp("home")
    before = Path("/tmp/nvflare").exists()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(place))
        yield place
    assert not (place / ".nvflare").exists()
    assert Path("/tmp/nvflare").exists() == before


@pytest.fixture(scope="module")
def central(tmp_path_factory):
    """Kits made in one place."""
    return provision(study(), tmp_path_factory.mktemp("central") / "kits", host=HOST, port=PORT)


@pytest.fixture(scope="module")
def distributed(tmp_path_factory):
    """Kits of parties that each made a key; only public files travel."""
    place = tmp_path_factory.mktemp("distributed")
    registrar = make_registrar(study(), place / "registrar", host=HOST, port=PORT)
    mark = fingerprint(read_certificate(registrar.certificate))
    made = {"registrar": registrar.folder}
    for folder, (role, _) in ROLES.items():
        name = {"site": folder, "aggregator": HOST}.get(role)
        asked = request(study(), place / folder, role=role, name=name)
        sent = place / f"{folder}.json"
        sent.write_bytes(asked.read_bytes())
        answer = approve(sent, registrar.folder, place / f"{folder}.approval.json")
        made[folder] = package(place / folder, answer, fingerprint=mark).folder
    return made


@pytest.fixture(scope="module", params=["central", "distributed"])
def kits(request):
    return request.getfixturevalue(request.param)


def files(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_every_party_has_a_whole_kit(kits):
    assert set(kits) == {*ROLES, "registrar"}
    for folder, (role, in_certificate) in ROLES.items():
        kit = open_kit(kits[folder], role=role)
        prepare(kit)
        assert (kit.host, kit.port, kit.project) == (HOST, PORT, "trial")
        assert role_name(read_certificate(kit.certificate)) == in_certificate
    assert open_kit(kits["registrar"], role="registrar").key.is_file()


def test_kits_of_both_ways_are_the_same(central, distributed):
    for name, folder in central.items():
        assert files(folder) == files(distributed[name]), name
        for file in files(folder):
            # a list of members names its own registrar and time
            own = file == MEMBERS or "aggregator/local" in f"{name}/{file}"
            if file.endswith(".json") and not own:
                text = (folder / file).read_text()
                assert text == (distributed[name] / file).read_text(), file
    assert files(central["north"]) == sorted(
        [
            FILE,
            *(f"local/{name}.json" for name in ("authorization", "log_config", "resources")),
            MEMBERS,
            *(f"startup/{name}" for name in ("client.crt", "client.key", "rootCA.pem")),
            "startup/fed_client.json",
        ]
    )
    assert (
        str(central["aggregator"])
        in (central["aggregator"] / "local" / "resources.json").read_text()
    )


def test_no_scripts_no_notebooks_and_nothing_that_others_can_read(kits):
    for folder in kits.values():
        assert folder.stat().st_mode & 0o077 == 0
        for path in folder.rglob("*"):
            assert path.suffix not in (".sh", ".ipynb", ".default", ".sample", ".zip"), path
            assert not path.is_symlink()
            assert not (path.is_file() and os.access(path, os.X_OK)), path
            if path.suffix == ".key":
                assert path.stat().st_mode & 0o777 == 0o600, path


def secrets(path):
    """A private key in every form in which a file might hold it."""
    key = read_key(path)
    numbers = key.private_numbers()
    der = [
        key.private_bytes(Encoding.DER, form, NoEncryption())
        for form in (PrivateFormat.TraditionalOpenSSL, PrivateFormat.PKCS8)
    ]
    prime = numbers.p.to_bytes(key.key_size // 16, "big")
    found = {prime, prime.hex().encode(), str(numbers.p).encode(), *der}
    # base64 of the whole: any line of it would do, with or without line ends
    for whole in der:
        text = base64.b64encode(whole)
        found |= {text[start : start + 64] for start in range(64, len(text) - 64, 64)}
    return found


def test_every_private_key_is_in_one_place_alone(kits):
    everything = {
        path: path.read_bytes() for path in kits["north"].parent.rglob("*") if path.is_file()
    }
    assert len(everything) > 50
    owners = [open_kit(folder).key for folder in kits.values()]
    assert {path for path in everything if path.suffix == ".key"} == set(owners)
    for own in owners:
        hidden = secrets(own)
        holding = {path for path, text in everything.items() if any(s in text for s in hidden)}
        assert holding == {own}  # found there: the search works
    assert len({own.read_bytes() for own in owners}) == len(owners)


def test_certificates_chain_to_the_root_as_flare_checks_it(kits):
    from nvflare.lighter.utils import verify_cert, verify_cert_chain

    root = read_certificate(open_kit(kits["registrar"]).certificate)
    for folder in ROLES:
        kit = open_kit(kits[folder])
        assert read_certificate(kit.root_certificate) == root
        own = read_certificate(kit.certificate)
        verify_cert(own, root.public_key())
        verify_cert_chain(own, [], root)
        left = own.not_valid_after_utc - datetime.now(UTC)
        assert timedelta(days=364) < left < timedelta(days=366)
        assert not own.extensions.get_extension_for_class(BasicConstraints).value.ca
        usage = own.extensions.get_extension_for_class(ExtendedKeyUsage).value
        assert (ExtendedKeyUsageOID.SERVER_AUTH in usage) == (folder == "aggregator")
        names = own.extensions.get_extension_for_class(SubjectAlternativeName).value
        assert HOST in str(list(names)) or folder != "aggregator"


def test_a_signature_says_in_which_role_it_was_made(kits, tmp_path):
    from nvflare.lighter.utils import sign_folders, verify_folder_signature_and_get_signers

    root = open_kit(kits["south"]).root_certificate
    for name, role in (("lead", "lead"), ("north", "client")):
        folder = tmp_path / name
        (folder / "app").mkdir(parents=True)
        (folder / "app" / "job.json").write_text("{}")
        kit = open_kit(kits[name])
        sign_folders(str(folder), read_key(kit.key), str(kit.certificate))
        whole, signers = verify_folder_signature_and_get_signers(str(folder), str(root))
        assert whole
        assert {tuple(signer) for signer in signers} == {(kit.name, kit.org, role)}


def test_what_starts_flare_is_what_flare_itself_writes(central, tmp_path):
    """So that a later 2.9 that writes something else is noticed."""
    from nvflare.lighter.constants import ProvisionMode
    from nvflare.lighter.impl.cert import CertBuilder
    from nvflare.lighter.impl.static_file import StaticFileBuilder
    from nvflare.lighter.impl.workspace import WorkspaceBuilder
    from nvflare.lighter.provision import prepare_project
    from nvflare.lighter.provisioner import Provisioner

    lead = open_kit(central["lead"]).name
    people = [
        {"name": HOST, "type": "server", "org": "aggregator", "fed_learn_port": PORT},
        {"name": "north", "type": "client", "org": "north"},
        {"name": lead, "type": "admin", "org": "lead", "role": "lead"},
    ]
    project = prepare_project({"api_version": 3, "name": "trial", "participants": people})
    builders = [
        WorkspaceBuilder(),
        StaticFileBuilder(config_folder="config", scheme="http", require_signed_jobs=True),
        CertBuilder(),
    ]
    Provisioner(str(tmp_path), builders).provision(project, mode=ProvisionMode.NORMAL)
    theirs = tmp_path / "trial" / "prod_00"
    for ours, name, file in (
        ("aggregator", HOST, "fed_server.json"),
        ("north", "north", "fed_client.json"),
        ("lead", lead, "fed_admin.json"),
    ):
        written = json.loads((theirs / name / "startup" / file).read_text())
        assert json.loads((central[ours] / "startup" / file).read_text()) == written
    for ours, name in (("aggregator", HOST), ("north", "north"), ("lead", lead)):
        default = json.loads((theirs / name / "local" / "resources.json.default").read_text())
        mine = json.loads((central[ours] / "local" / "resources.json").read_text())
        assert set(mine) == set(default), "a setting of FLARE's is left to its default, or is new"
    whose = next((theirs / HOST / "local").glob("authorization.json.default"))
    roles = json.loads(whose.read_text())["permissions"]
    ours = json.loads((central["north"] / "local" / "authorization.json").read_text())
    assert set(ours["permissions"]) == set(roles)
    assert set(roles["lead"]) <= set(ours["permissions"]["lead"])


def handshake(server_kit, client_kit, host):
    """Whether a client would speak to a server with these kits."""
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(server_kit.certificate, server_kit.key)
    served.load_verify_locations(server_kit.root_certificate)
    served.verify_mode = ssl.CERT_REQUIRED
    queries = ssl.create_default_context(cafile=client_kit.root_certificate)
    queries.load_cert_chain(client_kit.certificate, client_kit.key)
    one, other = socket.socketpair()
    for end in (one, other):
        end.settimeout(10)

    def serve():
        try:
            with served.wrap_socket(one, server_side=True) as channel:
                channel.sendall(b"hello")
        except OSError:
            one.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with queries.wrap_socket(other, server_hostname=host) as channel:
            return channel.recv(5) == b"hello"
    except OSError:
        return False
    finally:
        other.close()
        thread.join()


def test_no_site_can_pass_for_the_aggregator_and_no_stranger_connects(central, tmp_path):
    north, south = (open_kit(central[name]) for name in ("north", "south"))
    aggregator = open_kit(central["aggregator"])
    stranger = open_kit(provision(study(), tmp_path / "kits")["north"])
    assert handshake(aggregator, north, HOST)
    assert not handshake(aggregator, north, "elsewhere")
    assert not handshake(south, north, "south")
    assert not handshake(aggregator, stranger, HOST)
    assert not handshake(stranger, north, "north")


# -- the registrar


@pytest.fixture
def registrar(tmp_path):
    return make_registrar(study(), tmp_path / "registrar", host=HOST, port=PORT)


def test_the_registrar_certifies_the_studys_parties_only_and_each_once(registrar, tmp_path):
    out = tmp_path / "approval.json"

    def refusal(role, name, of=None, **options):
        asked = request(of or study(), tmp_path / "k", role=role, name=name, overwrite=True)
        with pytest.raises(DataError) as caught:
            approve(asked, registrar.folder, out, **options)
        assert not out.exists()
        return caught.value.code

    assert refusal("site", "north", study(name="other")) == "other-project"
    assert refusal("aggregator", "elsewhere.org") == "not-in-study"
    assert refusal("site", "north", days=0) == "bad-days"
    wide = make_study(
        name="trial", features=5, components=2, sites=({"name": "north"}, {"name": "east"})
    )
    assert refusal("site", "east", wide) == "not-in-study"
    first = request(study(), tmp_path / "first", role="site", name="north")
    approve(first, registrar.folder, out)
    with pytest.raises(OutputError, match="exists"):
        approve(first, registrar.folder, out)
    out.unlink()
    assert refusal("site", "north") == "already-issued"
    approve(first, registrar.folder, out, renew=True)


def test_a_certificate_is_renewed_and_the_kit_stays(registrar, tmp_path):
    mark = fingerprint(read_certificate(registrar.certificate))
    asked = request(study(), tmp_path / "north", role="site", name="north")
    answer = approve(asked, registrar.folder, tmp_path / "1.json", days=10)
    kit = package(tmp_path / "north", answer, fingerprint=mark)
    (kit.decided / "00.json").write_text("{}")
    old, key = read_certificate(kit.certificate), kit.key.read_bytes()
    again = request(study(), kit.folder, role="site", name="north", renew=True)
    answer = approve(again, registrar.folder, tmp_path / "2.json", renew=True)
    package(kit.folder, answer, fingerprint=mark)
    new = read_certificate(kit.certificate)
    assert new.not_valid_after_utc > old.not_valid_after_utc
    assert new.serial_number != old.serial_number
    assert kit.key.read_bytes() == key
    assert (kit.decided / "00.json").exists()
    with pytest.raises(DataError) as caught:
        request(study(), kit.folder, role="site", name="south", renew=True)
    assert caught.value.code == "other-kit"


def test_certificates_end_with_the_root_and_an_expired_root_signs_nothing(registrar, tmp_path):
    key = new_key(2048)
    asked = request(study(), tmp_path / "north", role="site", name="north")
    registrar.key.unlink()
    registrar.certificate.unlink()
    listed = json.loads(registrar.members.read_text("ascii"))["members"]
    sent = tmp_path / "sent.json"
    sent.write_bytes(asked.read_bytes())
    write_key(registrar.key, key)
    for days in (20, 0):
        root = authority.make_root("trial", key, days=days)
        registrar.certificate.write_bytes(pem(root))
        of_it = MemberList.model_validate(listed | {"federation": federation_of(root)})
        registrar.members.unlink()
        write_members(registrar.members, sign_members(of_it, key))
        if days:
            answer = approve(sent, registrar.folder, tmp_path / "a.json")
            kit = package(tmp_path / "north", answer, fingerprint=fingerprint(root))
            assert read_certificate(kit.certificate).not_valid_after_utc == root.not_valid_after_utc
        else:
            with pytest.raises(DataError) as caught:
                approve(sent, registrar.folder, tmp_path / "b.json", renew=True)
            assert caught.value.code == "certificate-expired"


# -- nothing half-made


def test_a_failure_leaves_nothing_behind(tmp_path, monkeypatch):
    def fail(*args, **kwargs):
        raise OSError(28, "No space left on device")

    provision(study(), tmp_path / "kits")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    monkeypatch.setattr("eigenveil.network.x509_registrar.certificates.pem", fail)
    for out, target in ((tmp_path / "kits", True), (tmp_path / "new", False)):
        with pytest.raises(OutputError, match="No space left"):
            provision(study(), out, overwrite=target)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["kits"]


def test_without_a_registrar_the_root_key_is_thrown_away(tmp_path):
    made = provision(study(), tmp_path / "kits", registrar=False)
    assert "registrar" not in made
    assert sorted(path.name for path in (tmp_path / "kits").iterdir()) == sorted(ROLES)
    assert not list(tmp_path.rglob("rootCA.key"))


# -- as people do it


def test_the_commands(tmp_path, run, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_toml(study(), Path("study.toml"))
    status, out, err = run("flare", "provision", "study.toml", "--out", "kits")
    assert (status, err) == (0, "")
    assert "registrar" in out
    assert "independent" in out
    status, out, _ = run("flare", "show", "kits/north")
    assert status == 0
    assert "SiteExecutor" in out
    words = ("flare", "provision", "study.toml", "--out", "own/registrar", "--registrar-only")
    mark = json.loads(run(*words, "--json")[1])["root_fingerprint"]
    asked = ("--role", "site", "--name", "north", "--out", "own/north", "--json")
    said = json.loads(run("flare", "request", "study.toml", *asked)[1])
    words = ("flare", "approve", said["request"], "--kit", "own/registrar", "--json")
    answer = json.loads(run(*words)[1])
    assert answer["key_fingerprint"] == said["key_fingerprint"]
    assert answer["root_fingerprint"] == mark
    assert answer["approval"] == "north.approval.json"
    status, _, err = run("flare", "package", "own/north", answer["approval"], "--fingerprint", "00")
    assert status == 3
    assert "telephone" in err
    done = run("flare", "package", "own/north", answer["approval"], "--fingerprint", mark)
    assert done[0] == 0
    assert "complete" in done[1]
    facts = json.loads(run("flare", "show", "own/north", "--json")[1])
    assert (facts["role"], facts["name"], facts["problem"]) == ("site", "north", "")
    assert facts["allows"] == ["eigenveil.network.flare.executor.SiteExecutor"]


def test_the_registrar_changes_who_is_in(tmp_path):
    """Nobody's kit changes; what was removed or revoked gets no certificate by its old request."""
    from eigenveil.network import registrar as office

    kits = provision(study(), tmp_path / "kits", host="agg.example.org")
    place = kits["registrar"]
    known = lambda: KnownMembers(  # noqa: E731
        place / "members.json", read_certificate(place / "rootCA.pem")
    ).current()
    before = known()
    assert before.number == 1 + len(before.keys)  # a list more with each key
    assert {each.name for each in before.keys} == {each.name for each in before.parties}
    assert {each.name for each in before.parties} >= {"north", "agg.example.org"}
    assert known_members(open_kit(kits["north"])).current() == before
    added = office.add_party(place, role="site", name="annex").members
    assert (added.number, added.history[-1]) == (before.number + 1, before.digest)
    for name in ("annex", "NORTH"):
        with pytest.raises(DataError, match="already"):
            office.add_party(place, role="site", name=name)
    with pytest.raises(DataError, match="one aggregator"):
        office.add_party(place, role="aggregator", name="b.example.org")
    revoked = office.revoke(place, "north").members
    serial = read_certificate(open_kit(kits["north"]).certificate).serial_number
    assert [each.serial for each in revoked.revoked] == [f"{serial:x}"]
    assert not revoked.key_of("site", "north")
    assert office.revoke(place, "north").members.revoked == revoked.revoked  # once
    gone = office.remove_party(place, "north").members
    assert Member(role="site", name="north") in gone.removed
    assert Member(role="site", name="north") not in gone.parties
    again = request(study(), kits["north"], role="site", name="north", renew=True)
    assert again.name == "north-request.json"
    with pytest.raises(DataError, match="removed from the federation"):
        approve(again, place, tmp_path / "a.json", renew=True)
    for name in ("nobody", "agg.example.org"):
        with pytest.raises(DataError):
            office.remove_party(place, name)
    back = office.add_party(place, role="site", name="north").members
    assert back.removed == ()
    assert back.revoked == gone.revoked  # the old certificates stay revoked
    with pytest.raises(DataError, match="the key was revoked") as caught:
        approve(again, place, tmp_path / "b.json", renew=True)
    assert caught.value.code == "revoked-key"
    assert known() == back
    fresh = request(study(), kits["north"], role="site", name="north", renew=True, new_key=True)
    approve(fresh, place, tmp_path / "b.json", renew=True)
    assert known().number == back.number + 1
    assert known().key_of("site", "north")
