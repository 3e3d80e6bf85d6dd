"""Lets the tests import :mod:`statistics_tools`, which lies beside this file."""

import itertools
import os
import re

import pytest
from hypothesis import HealthCheck, settings
from threadpoolctl import threadpool_limits

import disk_tools
import repeated_tools
import soak_tools
from browser_tools import browser  # noqa: F401  a fixture

# modules of fixtures have no doctests, and all have one name
collect_ignore_glob = ["conftest.py", "*/conftest.py"]

# Two runs of make test on one commit try the same examples, so that a failure is the commit's;
# make nightly looks for others.
settings.register_profile(
    "counted",
    derandomize=soak_tools.SOAK < 1,
    max_examples=soak_tools.times(60),  # make test must stay short on two processors
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],  # a busy machine is no error
)
settings.load_profile("counted")

disk_tools.wait_for_no_disk()
repeated_tools.repeat_noise()

# readline, in the process that starts pytest's workers, tells all that they start how wide a
# terminal is; here nothing is one
os.environ.pop("COLUMNS", None)

# what tests serve is on loopback: no proxy of this machine's carries it
for _name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
    os.environ.pop(_name, None)
    os.environ.pop(_name.lower(), None)


# Where a test names no unit, each person has one row.
for _command in ("FIT", "WATCH", "FEDERATE_TREE", "STUDY_NEW"):
    os.environ[f"EIGENVEIL_{_command}_ONE_ROW_PER_PERSON"] = "1"


@pytest.fixture(autouse=True, scope="session")
def _one_thread_each_where_workers_share_the_processors():
    """With ``pytest -n`` the libraries' idle threads would spin in each other's way."""
    limit = 1 if "PYTEST_XDIST_WORKER" in os.environ else None
    with threadpool_limits(limit):
        yield


@pytest.fixture
def forced():
    """Ledgers wait for the disk in this test."""
    disk_tools.ledgers_wait_again()
    yield
    disk_tools.wait_for_no_disk()


@pytest.fixture(autouse=True, scope="session")
def next_ledger(tmp_path_factory):
    """Name another new file for the ledger that commands charge to; never that of this user."""
    folder, number = tmp_path_factory.mktemp("ledgers"), itertools.count()

    def name_it():
        """The file, from now on, of this process and those that it starts."""
        os.environ["EIGENVEIL_LEDGER"] = place = str(folder / f"{next(number)}.ledger")
        return place

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EIGENVEIL_STATE", str(tmp_path_factory.mktemp("state")))
        patch.setenv("EIGENVEIL_LEDGER", "")  # to be put back as it was
        name_it()
        yield name_it


@pytest.fixture(autouse=True)
def _a_ledger_of_its_own_for_each_test(next_ledger):
    next_ledger()


@pytest.fixture
def parties(tmp_path):
    from federation_tools import make_federation

    return make_federation(tmp_path / "parties")


@pytest.fixture
def party(parties):
    return parties["north"]


@pytest.fixture
def run(capsys, next_ledger):
    """Call the command line: exit status, standard output, standard error.

    Each call's usual ledger is new, where the test has not set EIGENVEIL_LEDGER itself. One that
    must end well gives its output alone (``run.done``), one that must not its error
    (``run.fails``).
    """
    from eigenveil.cli.app import main

    usual = os.environ["EIGENVEIL_LEDGER"]

    def call(*words):
        nonlocal usual
        if os.environ.get("EIGENVEIL_LEDGER") == usual:
            usual = next_ledger()
        with pytest.raises(SystemExit) as ended:
            main([str(word) for word in words])
        out, err = capsys.readouterr()
        return ended.value.code, out, err

    def done(*words):
        status, out, err = call(*words)
        assert status == 0, err
        return out

    def fails(*words, status=None):
        found, out, err = call(*words)
        assert found if status is None else found == status, out + err
        return err

    call.done, call.fails = done, fails
    return call


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    with repeated_tools.noise_of(item.nodeid):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef, request):
    """What several tests share is the same whichever of them comes first."""
    if fixturedef.scope == "function":
        return (yield)
    parameter = getattr(request, "param_index", 0)
    with repeated_tools.noise_of(f"{request.node.nodeid} {fixturedef.argname} {parameter}"):
        return (yield)


def pytest_make_parametrize_id(val, argname):
    """Packed bytes hold the time: workers that begin in two seconds would not have one name."""
    return argname if isinstance(val, bytes) and not val.isascii() else None


def pytest_collection_modifyitems(items):
    """First what forks this process hundreds of times, as long as it is small."""
    items.sort(key=lambda item: not item.path.stem.startswith("test_killed"))


NEEDS = tuple(filter(None, os.environ.get("EIGENVEIL_NEEDS", "").lower().split(",")))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """A skip for want of what EIGENVEIL_NEEDS names is a failure; examples are counted."""
    report = yield
    if call.when == "teardown":
        found = re.findall(r"(\d+) passing", getattr(item, "hypothesis_statistics", ""))
        soak_tools.count("drawn", "examples of hypothesis", sum(map(int, found)))
    return _failed_where_needed(report)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    """The same of a module that skips itself; what it fits has noise of its own."""
    with repeated_tools.noise_of(collector.nodeid):
        return _failed_where_needed((yield))


def _failed_where_needed(report):
    if report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2]
        if any(word in reason.lower() for word in NEEDS):
            report.outcome, report.longrepr = "failed", f"EIGENVEIL_NEEDS has it: {reason}"
    return report


def pytest_sessionfinish(session):
    """Write what was tried, or tell it to the process that does."""
    place = os.environ.get("EIGENVEIL_COUNTS")
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["soak"] = soak_tools.taken()
    elif place:
        found = session.config.pluginmanager.get_plugin("terminalreporter").stats
        names = ("passed", "failed", "error", "skipped", "xfailed")
        soak_tools.write(place, {name: len(found.get(name, ())) for name in names})


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node, error):
    """A worker has ended: its counts."""
    del error
    soak_tools.add(getattr(node, "workeroutput", {}).get("soak", []))
