"""What commands refuse: one sentence and a hint, a status, nothing printed, nothing left behind."""

import numpy as np
import pytest
import scipy.sparse

from eigenveil.federation.study.file import write_toml
from federation_tools import study_of

NAMES = [f"x{i}" for i in range(6)]
MIXTURE = ("--task", "gaussian-mixture")
TOPICS = ("--task", "topic-model")
FIT = ("fit", "rows.csv", "--out", "out")
SITES = ("fit", "--site", "a=rows.csv", "--site", "b=b.csv", "--out", "out")
COUNTED = ("fit", "documents.npz", *TOPICS, "--out", "out")
PLAN = ("plan", "--rows", 1000, "--features", 100)
NEW = ("study", "new", "out", "--site", "a", "--features", 4)
WATCH = ("watch", "rows.csv")
PLAN_COVARIANCE = ("plan", "--task", "covariance", "--features", 5)
LARGE = ("plan", "--rows", 2000, "--features", 8)
TREE = ("federate-tree", "--site", "a=rows.csv", "--site", "b=b.csv", "--out", "out")
REFUSED = [
    (("fit",), 2, "--out"),
    (("fit", "--out", "out"), 3, "--site NAME=FILE for several"),
    ((*FIT, "--protocol", "cape"), 3, "several sites"),
    ((*FIT, "--epsilon", "much"), 2, "--epsilon"),
    (("nothing",), 2, "nothing"),
    (("certify", "model.npz"), 3, "Give the result's folder: eigenveil certify ."),
    (("certify", "certificate.json"), 3, "certificate"),
    # a fit, in all that is said of it
    ((*FIT, "--epsilon", 0), 4, "epsilon = 0"),
    ((*FIT, "--delta", 2), 4, "delta = 2"),
    ((*FIT, "--delta", 0, "--mechanism", "gaussian"), 4, "wishart"),
    ((*FIT, "-k", 99), 3, "n_components = 99"),
    ((*FIT, "--mechanism", "magic"), 3, "mechanism"),
    ((*FIT, "--columns", "x1,zz"), 3, "'zz'"),
    ((*FIT, "--budget-split", "moment"), 3, "NAME=NUMBER"),
    ((*FIT, "--center", "nowhere.npy"), 3, "nowhere.npy"),
    ((*FIT, "--row-norm", "long"), 3, "--row-norm"),
    ((*FIT, "--components", 1.5), 3, "--components = 1.5 must be an int"),
    ((*FIT, "--pair", "full"), 2, "--pair"),
    ((*FIT, "--task", "clusters"), 2, "'clusters' is not one of pca"),
    ((*FIT, "--study", "s.toml"), 3, "--study is for several sites."),
    ((*FIT, "--from", "sqlite:///r.db"), 2, "--sql and --from belong together."),
    ((*FIT, "--sql", "SELECT 1"), 2, "no database is named"),
    ((*FIT, "--no-ledger", "--data-set", "d"), 2, "--no-ledger leaves nothing to charge"),
    ((*FIT, "--projection", "out/rows.png"), 2, "is to be published, and shows rows"),
    ((*FIT, *MIXTURE, "--row-norm", "auto"), 2, "--row-norm is not for --task gaussian-mixture"),
    ((*FIT, *MIXTURE, "--projection", "rows.png"), 2, "--projection"),
    ((*FIT, *MIXTURE, "--vocabulary", "words.txt"), 2, "It is for topic-model"),
    ((*FIT, *MIXTURE, "-k", 33), 3, "Got 33 instead"),
    ((*FIT, *MIXTURE, "-k", "two"), 3, "--components = 'two' must be an int"),
    ((*FIT, *MIXTURE, "--noise-variance", -1), 3, "--noise-variance"),
    ((*FIT, *MIXTURE, "--protocol", "cape"), 3, "several sites"),
    ((*FIT, *MIXTURE, "--collusion", 1), 3, "several sites"),
    ((*FIT, *MIXTURE, "--budget-split", "moment=1,variance=1"), 4, "variance"),
    ((*FIT, *MIXTURE, "--delta", 0, "--mechanism", "gaussian"), 4, "delta = 0"),
    ((*FIT, *MIXTURE, "--no-clip-documents"), 2, "It is for topic-model"),
    ((*COUNTED, "--center", "none"), 2, "It is for pca, gaussian-mixture, covariance and ica"),
    ((*COUNTED, "--row-bound", 3), 2, "--row-bound"),
    ((*COUNTED, "--noise-variance", 1), 2, "It is for gaussian-mixture"),
    ((*COUNTED, "-k", 13), 3, "n_components = 13"),
    ((*COUNTED, "--vocabulary", "nowhere.txt"), 3, "nowhere.txt"),
    (("fit", "nowhere.npz", *TOPICS, "--row-norm", "unit", "--out", "out"), 2, "--row-norm"),
    # ledgers
    ((*FIT, "--no-ledger", "--ledger", "x"), 2, "--no-ledger leaves nothing to charge"),
    ((*FIT, "--ledger", ""), 3, "--ledger = '' must be"),
    ((*FIT, "--data-set", ""), 3, "--data-set = '' must be"),
    ((*FIT, "--ledger", "no/such/folder/l"), 7, "No such file or directory"),
    ((*FIT, "--ledger", "rows.csv"), 3, "not a ledger"),
    ((*FIT, "--ledger", "sqlite://"), 7, "a file of its own"),
    ((*FIT, "--ledger", "://"), 7, "not a database URL"),
    ((*FIT, "--ledger", "foo://me:secret@host/x"), 7, "no driver"),
    # several sites
    ((*SITES, "--ledger", "l"), 2, "--ledgers FOLDER"),
    ((*SITES, "--data-set", "x"), 2, "--ledgers FOLDER"),
    ((*SITES, "rows.csv"), 3, "rows.csv belongs to no site."),
    ((*SITES, "--site", "north"), 3, "NAME=FILE"),
    ((*SITES, "--site", "north=nowhere.csv"), 3, "site north"),
    ((*SITES, "--mechanism", "wishart"), 3, "protocol"),
    ((*SITES, "--protocol", "gossip"), 3, "protocol"),
    ((*SITES, "--collusion", 2), 4, "honest"),
    ((*SITES, "--dropouts", 1, "--masks", "pairwise"), 4, "modular"),
    ((*SITES, "--epsilon", 0), 4, "epsilon"),
    ((*SITES, "--study", "nowhere.toml"), 3, "nowhere.toml"),
    ((*SITES, "--no-ledger"), 2, "Sites have a ledger each"),
    ((*SITES, "--from", "sqlite:///r.db"), 2, "--from is for one data set."),
    ((*SITES, "--projection", "rows.png"), 2, "Sites keep their rows"),
    ((*SITES, *MIXTURE, "--pair", "sketch"), 3, "choose a --protocol"),
    ((*SITES, *MIXTURE, "--protocol", "dpdispca"), 3, "dpdispca"),
    # trees
    ((*TREE, "--fan-out", 1), 2, "--fan-out = 1 is not 2 or more"),
    ((*TREE, "--unit", "person"), 3, "no column 'person'"),
    ((*TREE, "-k", 9), 3, "n_components = 9"),
    ((*TREE, "--protect", "nobody"), 3, "'nobody'"),
    ((*TREE, "--sketch-size", 0), 3, "sketch_size = 0"),
    ((*TREE, "--epsilon", 0), 4, "epsilon = 0"),
    (("federate-tree", "--site", "a=rows.csv", "--out", "out"), 2, "at least two sites"),
    # audits
    (("audit", "capee"), 3, "Did you mean 'cape'"),
    (("audit", "cape", "--trials", 20), 4, "Give at least --trials"),
    (("audit", "cape", "--confidence", 1.5), 4, "confidence = 1.5"),
    (("audit", "cape", "--jobs", 0), 4, "jobs = 0"),
    (("audit", "cape", "--seed", -1), 2, "--seed = -1"),
    (("audit", "cape", "--out", "."), 7, "exists"),
    (("audit", "cape", "--out", "/dev/null/such/folder"), 7, "cannot be made a folder"),
    # of two only the last would count
    (("fit", "rows.csv", "--exclude", "x1", "--exclude", "x2"), 2, "--exclude is given twice"),
    (("site", "status", "--party", "a", "--party", "b"), 2, "--party is given twice"),
    # results, and no folder is left behind
    (("report", "nowhere"), 7, "nowhere/model.npz does not exist"),
    (("transform", "nowhere", "rows.csv", "--out", "new/scores.csv"), 7, "does not exist"),
    (("fit", "nowhere.csv", "--out", "new/result"), 3, "nowhere.csv"),
    # plans
    ((*PLAN, *MIXTURE, "--spectrum", "power:1"), 2, "--spectrum"),
    ((*PLAN, *MIXTURE, "--mean-norm", 1), 2, "--mean-norm"),
    ((*PLAN, *TOPICS, "--center", "none"), 2, "--center"),
    ((*PLAN, *TOPICS, "--document-words", 2), 3, "document-words = 2"),
    ((*PLAN, *TOPICS, "--topic-words", 0), 3, "topic-words"),
    ((*PLAN, *MIXTURE, "--document-words", 9), 2, "--document-words"),
    ((*PLAN, *MIXTURE, "--distance", "nan"), 3, "distance"),
    ((*PLAN, "--distance", 3), 2, "gaussian-mixture"),
    ((*PLAN, "--pair", "full"), 2, "--pair"),
    ((*PLAN, "--fits", 0), 3, "fits"),
    ((*PLAN, *MIXTURE, "-k", 0.5), 3, "--components = 0.5"),
    ((*PLAN, *TOPICS, "-k", 200), 3, "n_components = 200"),
    ((*PLAN, *MIXTURE, "--epsilon", 0), 4, "epsilon = 0"),
    ((*PLAN, *MIXTURE, "--epsilon", 0.0015), 4, "Too few rows"),
    ((*LARGE, "--quality", 0), 3, "quality = 0"),
    ((*LARGE, "--quality", 1), 3, "quality = 1"),
    ((*LARGE, "--quality", "nan"), 3, "quality = nan"),
    ((*LARGE, "--quality", 0.9, "--epsilon", 1), 2, "--find rows"),
    ((*LARGE, "--quality", 0.9, "--find", "rows"), 2, "--find epsilon"),
    ((*LARGE, "--quality", 0.9, "--find", "delta"), 2, "epsilon, rows"),
    ((*LARGE, "--quality", 0.9, "--mechanism", "all"), 2, "--mechanism"),
    ((*LARGE, "--find", "rows"), 2, "--quality"),
    # studies
    ((*NEW, *TOPICS, "--row-norm", "auto"), 2, "--row-norm"),
    ((*NEW, *TOPICS, "--noise-variance", 1), 2, "--noise-variance"),
    ((*NEW, *MIXTURE, "--protocol", "full"), 3, "full"),
    ((*NEW, *MIXTURE, "-k", 0.5), 3, "--components = 0.5"),
    ((*NEW, *MIXTURE, "-k", 9), 3, "components = 9"),
    ((*NEW, "--task", "other"), 2, "'other'"),
    ((*NEW, "--site", "b", "--collusion", 2), 4, "honest"),
    ((*NEW, "--epsilon", 0), 4, "epsilon = 0"),
    ((*NEW, "--protocol", "magic"), 3, "protocol = 'magic'"),
    ((*NEW, "--delta", 0, "--protocol", "sketch"), 4, "delta = 0"),
    ((*NEW, "--site-epsilon", "a=much"), 3, "a=much"),
    ((*NEW, "--within-sites", "--center", "none"), 3, "within_sites"),
    ((*NEW, "--within-sites", "--missing", "zero"), 3, "within_sites and missing = 'zero'"),
    ((*NEW, "--task", "ica", "--within-sites"), 2, "--within-sites is not for"),
    ((*NEW, "--weights", "b=1"), 3, "names 'b', which is no site"),
    ((*NEW, "--site", "a b"), 3, "a b"),
    ((*NEW, "--center", "nowhere.npy"), 3, "nowhere.npy"),
    ((*NEW, "--columns", "a,b"), 3, "--columns, --features, --from, --schema"),
    (NEW[:-2], 3, "--columns, --features, --from, --schema"),
    (("study", "check", "nowhere.toml"), 3, "nowhere.toml"),
    (("study", "check", "s.toml", "--site", "nort=rows.csv"), 3, "Did you mean 'north'?"),
    (("study", "check", "s.toml", "--site", "north"), 3, "SITE=FILE"),
    (("study", "check", "s.toml", *["--site", "north=rows.csv"] * 2), 3, "twice"),
    (("study", "plan", "s.toml", "--rows", 0), 3, "rows = 0"),
    ((*PLAN_COVARIANCE, "--rows", 0), 3, "rows = 0"),
    ((*PLAN_COVARIANCE, "--rows", 9, "--spectrum", "flat"), 3, "flat"),
    ((*PLAN_COVARIANCE, "--rows", 9, "--mean-norm", 1), 2, "--mean-norm"),
    (("study", "plan", "s.toml", "--spectrum", "other:1"), 3, "other:1"),
    (("study", "plan", "s.toml", "--quality", 0.9), 2, "--rows"),
    (("schema", "new", "rows.csv", "--out", "s.toml", "--yes"), 7, "exists"),
    # streams
    ((*WATCH, "--delta", 0.1), 2, "--delta is for tracking with --epsilon."),
    ((*WATCH, "--epsilon", 1, "--center"), 2, "--center is for tracking without --epsilon."),
    ((*WATCH, "--epsilon", 1, "--horizon", 5, "--adjacency", "add-remove"), 2, "shifts all later"),
    ((*WATCH, "--epsilon", 1, "--publish", "continual"), 3, "horizon"),
    ((*WATCH, "--epsilon", 1, "--publish", "daily"), 3, "publish"),
    ((*WATCH, "--epsilon", -1), 4, "epsilon"),
    ((*WATCH, "-k", 7), 3, "n_components = 7"),
    ((*WATCH, "--forgetting", 0), 3, "forgetting"),
    ((*WATCH, "--adaptive-rank", 5, 1), 3, "alpha"),
    ((*WATCH, "--columns", "x1,zz"), 3, "'zz'"),
    ((*WATCH, "--out", "b.csv"), 7, "exists"),
    (("watch", "none.csv"), 3, "No rows in none.csv."),
    ((*WATCH, "--out", "c.npz"), 7, "c.npz is not of a format that can be written."),
    ((*WATCH, "--out", "/dev/null/c.csv"), 7, "/dev/null cannot be made a folder"),
]


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = np.random.default_rng(0).integers(-9, 10, size=(200, 6))
    for name in ("rows.csv", "b.csv"):
        np.savetxt(name, rows, delimiter=",", header=",".join(NAMES), comments="", fmt="%d")
    scipy.sparse.save_npz("documents.npz", scipy.sparse.csr_array(np.ones((50, 12), dtype=int)))
    (tmp_path / "model.npz").touch()
    (tmp_path / "none.csv").write_text("a,b\n")
    (tmp_path / "certificate.json").write_text('{"format": "other"}')
    (tmp_path / "words.txt").write_text("a\n")
    write_toml(study_of(), tmp_path / "s.toml")
    return tmp_path


@pytest.mark.parametrize(("words", "status", "said"), REFUSED)
def test_what_cannot_be_is_refused_in_words(words, status, said, files, run):
    before = sorted(files.iterdir())
    code, out, err = run(*words)
    assert (code, out) == (status, ""), err
    assert said in " ".join(err.split())
    assert "error: " in err
    assert "hint: " in err
    assert "Traceback" not in err
    assert "secret" not in err
    assert sorted(files.iterdir()) == before
