"""Any sequence of fit, partial_fit, merge, save, load, copies, changed parameters and Ctrl-C.

What is exposed is held against the noise that was really drawn: the function that draws it is
watched. Nothing here depends on chance but which sequences are tried.
"""

import copy
import pickle
import tempfile
import warnings
from pathlib import Path

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import eigenveil.moments.release as drawing
from eigenveil import (
    FederatedPCA,
    PrivateGaussianMixture,
    PrivatePCA,
    PrivateStreamingPCA,
    PrivateTopicModel,
)
from eigenveil.errors import EigenveilError, NoisyResultWarning
from eigenveil.federation.protocol.certificates import check
from eigenveil.models.result import model_digest
from eigenveil.moments import stream_sums
from eigenveil.moments.accumulators import SecondMoment
from eigenveil.moments.histograms import NormHistogram
from eigenveil.noise.source import SecureSource
from soak_tools import times

D = 4
BLOCK = 6
MAKERS = {
    "pca": lambda: PrivatePCA(1, epsilon=9.0),
    "seeded": lambda: PrivatePCA(1, epsilon=9.0, random_state=3),
    "end": lambda: PrivateStreamingPCA(1, epsilon=9.0),
    "continual": lambda: PrivateStreamingPCA(1, epsilon=9.0, publish="continual", horizon=3),
    "mixture": lambda: PrivateGaussianMixture(1, epsilon=40.0),
    "topics": lambda: PrivateTopicModel(1, epsilon=40.0),
    "sites": lambda: FederatedPCA(1, epsilon=9.0),
}
# What a model's factors are, as it shows them.
MAIN = ("components_", "means_", "topics_")
PICK = st.integers(0, 2**16)
# At which watched step an interrupt comes; none beyond the last.
WHEN = st.none() | st.integers(1, 12)


class Watch:
    """What is drawn, and an interrupt at a step that is chosen."""

    def __init__(self):
        self.drawn, self.left = [], None
        self._undo = [(SecureSource, "words", SecureSource.words)]
        # sequences are tried again as they were: what is drawn may not differ
        words = np.random.default_rng(1)
        SecureSource.words = lambda _, count: words.integers(0, 2**64, count, dtype=np.uint64)
        for owner, name in (
            (drawing, "noise_integers"),
            (stream_sums, "noise_integers"),
            (NormHistogram, "update"),
            (NormHistogram, "merge"),
            (SecondMoment, "update"),
            (SecondMoment, "merge"),
        ):
            real = getattr(owner, name)
            self._undo.append((owner, name, real))
            setattr(owner, name, self._watched(real, draws=name == "noise_integers"))

    def _watched(self, real, *, draws):
        def watched(*given):
            self.tick()
            if draws:
                total, record, source = given
                count = None
                if isinstance(total, NormHistogram):
                    count = int(total.integers()[-1])
                self.drawn.append((record, source.secure, count))
            found = real(*given)
            self.tick()
            return found

        return watched

    def tick(self):
        if self.left is not None:
            self.left -= 1
            if self.left <= 0:
                self.left = None
                raise KeyboardInterrupt

    def end(self):
        for owner, name, real in self._undo:
            setattr(owner, name, real)


def shown(model):
    """Bytes of the factors that a model shows, or ``None``."""
    for name in MAIN:
        if hasattr(model, name):
            return getattr(model, name).tobytes()
    return None


def told_what_was_drawn(error, drawn):
    """Whatever stops something says what had been released."""
    if drawn:
        assert {record.name for record, _, _ in drawn} <= {r.name for r in error.released}
        assert error.spent.epsilon > 0
        assert any("Already released" in note for note in error.__notes__)


class States(RuleBasedStateMachine):
    """Of one estimator a time and what is made of it."""

    kinds = tuple(sorted(MAKERS))

    def __init__(self):
        super().__init__()
        self.watch = Watch()
        self.rng = np.random.default_rng(0)
        self.models, self.blocks = [], []
        self.truth = {}  # what is shown: the noise that was drawn for it
        self.begun = {}  # of a stream's model: how many rows it was given, and the open block
        self.folder = tempfile.TemporaryDirectory()

    def teardown(self):
        self.watch.end()
        self.folder.cleanup()

    # -- doing something, and looking at what it did

    def act(self, call, when=None):
        """Do it, interrupted at a step; whether it was done, and the noise that was drawn."""
        before = len(self.watch.drawn)
        self.watch.left = when
        done = False
        try:
            with warnings.catch_warnings(action="ignore", category=NoisyResultWarning):
                call()
            done = True
        except (EigenveilError, KeyboardInterrupt, NotFittedError, AttributeError, TypeError) as e:
            told_what_was_drawn(e, self.watch.drawn[before:])
        finally:
            self.watch.left = None
        drawn = self.watch.drawn[before:]
        for model in self.models:
            seen = shown(model)
            if seen is not None and seen not in self.truth:
                assert drawn, "something is shown that no noise was drawn for"
                self.truth[seen] = [drawn]
            elif seen is not None and drawn and model.certificate_.stopped:
                self.truth[seen].append(drawn)  # what a fit that ended early shows is public
        return done, drawn

    def pick(self, number):
        return self.models[number % len(self.models)]

    def rows(self, model, count=BLOCK):
        if isinstance(model, PrivateTopicModel):
            return self.rng.multinomial(8, np.full(D, 1 / D), size=count)
        if isinstance(model, FederatedPCA):
            return [self.rng.normal(size=(count, D)) + 2 for _ in range(2)]
        return self.rng.normal(size=(count, D)) * [9, 1, 1, 1]

    # -- rules

    @initialize(kind=PICK)
    def begin(self, kind):
        """With something to attack."""
        self.models.append(MAKERS[self.kinds[kind % len(self.kinds)]]())
        self.fit(0, None)

    @precondition(lambda self: len(self.models) < 8)
    @rule(kind=PICK)
    def make(self, kind):
        self.models.append(MAKERS[self.kinds[kind % len(self.kinds)]]())

    @precondition(lambda self: self.models)
    @rule(which=PICK, when=WHEN)
    def fit(self, which, when):
        model = self.pick(which)
        rows = self.rows(model, 60)
        if self.act(lambda: model.fit(rows), when)[0]:
            self.begun[id(model)] = [60, None]

    def streams(self):
        return [m for m in self.models if isinstance(m, PrivateStreamingPCA)]

    @precondition(lambda self: self.streams())
    @rule(which=PICK, when=WHEN)
    def partial_fit(self, which, when):
        """A block that failed is given again, as its owner would."""
        model = self.streams()[which % len(self.streams())]
        given = self.begun.setdefault(id(model), [0, None])
        block = given[1]
        if block is None:
            block = self.rows(model)
            given[0] += BLOCK
        done, _ = self.act(lambda: model.partial_fit(block), when)
        given[1] = None if done else block

    @precondition(lambda self: self.streams())
    @rule(which=PICK, when=st.integers(2, 5))
    def stopped_and_given_again(self, which, when):
        self.partial_fit(which, when)
        self.partial_fit(which, None)
        self.release(which, None)

    @precondition(lambda self: len(self.streams()) > 1)
    @rule(first=PICK, second=PICK, when=WHEN)
    def merge(self, first, second, when):
        streams = self.streams()
        mine, theirs = streams[first % len(streams)], streams[second % len(streams)]
        rows = self.begun.get(id(theirs), [0, None])[0]
        if self.act(lambda: mine.merge(theirs), when)[0] and mine is not theirs:
            self.begun.setdefault(id(mine), [0, None])[0] += rows
            self.begun[id(theirs)] = [0, None]  # spent: it has none that it may count

    @precondition(lambda self: self.streams())
    @rule(which=PICK, when=WHEN)
    def release(self, which, when):
        model = self.streams()[which % len(self.streams())]
        _, drawn = self.act(model.release, when)
        for _, _, count in drawn:
            if count is not None:
                assert count <= self.begun.get(id(model), [0, None])[0], "rows counted twice"

    @precondition(lambda self: 0 < len(self.models) < 8)
    @rule(which=PICK, back=st.booleans())
    def save_and_load(self, which, back):
        model, path = self.pick(which), Path(self.folder.name) / "model.npz"
        path.unlink(missing_ok=True)
        self.act(lambda: model.save(path))
        if path.exists():
            loaded = type(model).load(path)
            assert shown(loaded) == shown(model)
            assert loaded.certificate_ == model.certificate_
            assert loaded.epsilon == loaded.certificate_.target.epsilon
            if back:
                self.models.append(loaded)

    @precondition(lambda self: self.models)
    @rule(which=PICK, epsilon=st.sampled_from([0.5, 4.0, 9.0]), seed=st.sampled_from([None, 1]))
    def set_params(self, which, epsilon, seed):
        self.pick(which).set_params(epsilon=epsilon, random_state=seed)

    @precondition(lambda self: 0 < len(self.models) < 8)
    @rule(
        which=PICK,
        how=st.sampled_from(
            [clone, copy.copy, copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))]
        ),
    )
    def copies(self, which, how):
        model, made = self.pick(which), []
        if self.act(lambda: made.append(how(model)))[0]:
            self.models += made
            if how is copy.copy and id(model) in self.begun:  # one stream, seen twice
                self.begun[id(made[0])] = self.begun[id(model)]

    @precondition(lambda self: self.models)
    @rule(which=PICK, name=st.sampled_from([*MAIN, "mean_", "n_samples_", "n_features_in_"]))
    def assign(self, which, name):
        model = self.pick(which)
        if hasattr(type(model), name):
            self.act(lambda: setattr(model, name, np.ones((1, D))))

    @precondition(lambda self: self.models)
    @rule(which=PICK)
    def write_into(self, which):
        model = self.pick(which)
        for name in MAIN:
            if hasattr(model, name):
                try:
                    array = getattr(model, name)
                    array.flags.writeable = True
                    array[:] = 1.0
                except ValueError:
                    pass
                model.certificate_.plan["epsilon"] = 0.001

    # -- what must hold

    def is_told(self, certificate, model, drawn):
        """Whether the certificate is of these releases."""
        wanted = {(r.name, r.noise.kind, r.noise.size) for r, _, _ in drawn}
        reported = {(r.name, r.noise.kind, r.noise.size) for r in certificate.releases}
        scales = {(r.name, r.noise.scale) for r, _, _ in drawn}
        sites = isinstance(model, FederatedPCA)  # there each site draws a part of it
        alike = sites or scales == {(r.name, r.noise.scale) for r in certificate.releases}
        secure = all(secure for _, secure, _ in drawn)
        source = "operating system" if secure else "seeded"
        return reported == wanted and alike and certificate.noise_source == source

    @invariant()
    def certificates_are_true(self):
        for model in self.models:
            seen = shown(model)
            assert (seen is None) == (not hasattr(model, "certificate_"))
            if seen is None:
                continue
            certificate = model.certificate_
            assert any(self.is_told(certificate, model, drawn) for drawn in self.truth[seen])
            secure = certificate.noise_source == "operating system"
            assert check(certificate).word == ("VALID" if secure else "NOT CERTIFIED")
            assert model.guarantee_ == certificate.guarantee()
            names = {each: f"{each}_" for each in vars(model._result.factors)}
            names["rows"] = "n_samples_"
            exposed = {
                each: getattr(model, name) for each, name in names.items() if hasattr(model, name)
            }
            assert certificate.model == model_digest(
                type(model._result.factors)(**(vars(model._result.factors) | exposed)),
                features=model.n_features_in_,
                names=None,
            )


class Streams(States):
    """Of several streams that have rows already."""

    kinds = ("end", "end", "continual")

    @initialize(kind=PICK)
    def begin(self, kind):
        del kind
        for place in range(3):
            self.models.append(MAKERS[self.kinds[place]]())
            self.partial_fit(place, None)


TestStates = States.TestCase
TestStates.settings = settings(max_examples=times(75), stateful_step_count=10, deadline=None)
TestStreams = Streams.TestCase
TestStreams.settings = settings(max_examples=times(200), stateful_step_count=10, deadline=None)
