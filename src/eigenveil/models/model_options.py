"""The options of how a model is computed: a part of :data:`eigenveil.models.options.OPTIONS`."""

from __future__ import annotations

from eigenveil.checks import LARGEST, SMALLEST
from eigenveil.models.domains import (
    NONE,
    TEXT,
    Flag,
    Number,
    NumberAFeature,
    OneOf,
    Option,
    Pair,
    Path,
    RangeAFeature,
    Shares,
    SomeColumns,
    WholeNumber,
    WordList,
)

# Each is a release of its own; long before so many, none shows anything above its noise.
MOST_POWER_ROUNDS = 1000
MOST_ROWS_OF_UNIT = 1 << 24
MOST_COMPONENTS = 32
"""Where their number follows from what is released."""
MOST_SOURCES = 20  # Whose fourth moment is released: of more it has too many numbers
DEFAULT_SPECTRUM = "power:1.0"
"""What is expected of rows where nothing is said."""

OF_SKETCH = "sketch_size"
"""The option that gives the number of columns of a sketch, for those who only pass it on."""
PCA, MIXTURE, TOPICS, COVARIANCE = "pca", "gaussian-mixture", "topic-model", "covariance"
ICA = "ica"
ALL = (PCA, MIXTURE, TOPICS, COVARIANCE, ICA)
IN_SPACE, TENSORS = (PCA, MIXTURE, COVARIANCE, ICA), (MIXTURE, TOPICS)
WHOLE_MOMENT = (COVARIANCE, ICA)
FITS: tuple[Path, ...] = ("table", "sites")
PRIVATE: tuple[Path, ...] = ("table", "sites", "stream")
ONE: tuple[Path, ...] = ("table", "stream")
SITES: tuple[Path, ...] = ("sites",)

DELTA = Number(0.0, 1.0, open_high=True)
SHARE = Number(0.0, 1.0, open_low=True, open_high=True)
BOUND = Number(SMALLEST, LARGEST)

OF_COUNTS: tuple[Option, ...] = (
    Option(
        "n_components", (WholeNumber(), SHARE, OneOf(("auto",)), NONE), 2,
        "A whole number; or a share such as 0.95: as many as explain 95 % of the variance; or "
        "'auto': all that stand above the noise. Of the last two at most 32.",
        (PCA,), PRIVATE,
        more="They are chosen from what was released, at no cost, and none is below the noise; not "
        "with mechanisms 'bingham' and 'power', which release so many and no more. None: "
        "as many as columns.",
    ),
    Option(
        "n_components", (WholeNumber(),), 2,
        "Number of components, from 1 to the number of columns.",
        (PCA,), ("tracking",),
    ),
    Option(
        "n_components", (WholeNumber(), OneOf(("auto",))), "auto",
        "Number of components (means, topics), or 'auto': as many as stand above the noise, at "
        "most 32.",
        TENSORS, FITS,
    ),
    Option(
        "n_components", (WholeNumber(2, MOST_SOURCES),), 2,
        "Number of sources, from 2 to 20, and no more than columns: as many leading directions of "
        "the rows are unmixed; one alone is the first principal component.",
        (ICA,), FITS,
    ),
)  # fmt: skip

OF_MODELS: tuple[Option, ...] = (
    Option(
        "vocabulary", (WordList(), NONE), None,
        "A public list of words, whose counts are the columns: rows may be texts then. It must "
        "not be made from these texts.",
        (TOPICS,), ("table",), local=True, examples=(["fever", "cough"],),
        more="Texts are split as by scikit-learn's ``CountVectorizer``; an entry of several words "
        "counts them where they stand together. The words name the result's columns.",
    ),
    Option(
        "mechanism",
        (
            OneOf(
                (
                    *("auto", "adaptive", "gaussian", "wishart", "vector"),
                    *("bingham", "power", "sketch"),
                )
            ),
        ),
        "auto",
        "How the second moment is released: 'adaptive' (twice, with Gaussian noise), by its noise "
        "'gaussian', 'wishart', 'vector' or 'bingham', by less than all of it 'power' or 'sketch', "
        "or 'auto': 'wishart' if delta = 0, else 'adaptive', of more than 4,095 columns 'sketch'.",
        (PCA,), ("table",),
        more="'gaussian': isometric Gaussian noise. 'adaptive': two such releases that cost as "
        "much as one, the second of rows in which the directions that matter are more even; "
        "where that is predicted to lose, of the same rows, which is one release; 'auto' "
        "takes 'gaussian' with ``covariates``, a ``missing`` that corrects the moment, or as "
        "many components as features, and 'sketch' with ``sketch_size``, or of more than 4,095 "
        "columns where the whole moment would take ten times as long, unless options need it: "
        "``eigenveil plan`` says which and why. 'wishart': the difference of two Wishart matrices, "
        "pure epsilon. 'vector': noise of density ``exp(-epsilon |E|_F)``, pure epsilon. "
        "'bingham': the exponential mechanism, sampled exactly, pure epsilon. 'power': the "
        "noisy power method. 'sketch': D x ``sketch_size`` numbers in place of D x D, and "
        "then the moment inside the range that they show (not of pure epsilon).",
    ),
    Option(
        "mechanism", (OneOf(("auto", "adaptive", "gaussian")),), "auto",
        "How protocols 'cape' and 'local' release the second moment: 'adaptive' (twice, one round "
        "more), 'gaussian' (once), or 'auto': 'adaptive' unless delta = 0.",
        (PCA,), SITES,
    ),
    Option(
        "mechanism", (OneOf(("auto", "gaussian", "vector")),), "auto",
        "Noise of the third moment: 'gaussian', 'vector' (pure epsilon), or 'auto': 'vector' if "
        "delta = 0.",
        TENSORS, FITS,
        more="'gaussian' is isometric (AGN of paper 001), 'vector' has density ``exp(-epsilon "
        "|E|_F)`` (AVN); with ``delta=0`` all other releases are pure too. Of several sites "
        "vector noise, and so ``delta=0``, needs ``masks='modular'``.",
    ),
    Option(
        "mechanism", (OneOf(("auto", "gaussian", "wishart", "vector")),), "auto",
        "Noise of the second moment: 'gaussian', 'wishart', 'vector', or 'auto': 'wishart' if "
        "delta = 0, else 'gaussian'.",
        WHOLE_MOMENT, ("table",),
    ),
    Option(
        "row_norm", (OneOf(("unit", "auto", "max")), BOUND), "unit",
        "How rows are scaled to norm at most 1: 'unit' (all the same), 'auto', a public bound on "
        "the norm of a centred row, or 'max' (reproductions only).",
        (PCA,), ("table",), unit="the data's",
        more="'auto' clips rows at a quantile chosen from the released norms, or divides them by "
        "their norm where that captures more; 'max' divides by the largest norm found, and "
        "is never certified.",
    ),
    Option(
        "row_norm", (OneOf(("unit", "auto")), BOUND), "unit",
        "How rows are scaled to norm at most 1: 'unit' (all the same), 'auto', or a public "
        "bound on "
        "the norm of a centred row.",
        (PCA,), SITES, unit="the data's", examples=("unit",),
    ),
    Option(
        "row_norm", (OneOf(("unit",)), BOUND), "unit",
        "How rows are scaled to norm at most 1: 'unit' (all the same), or a public number that "
        "they "
        "are shortened to.",
        (PCA,), ("stream",), unit="the data's",
    ),
    Option(
        "row_bound", (BOUND, NONE), None,
        "A public bound on the norm of rows, in the data's units; skips releasing their norms.",
        IN_SPACE, FITS, unit="the data's", examples=(10.0,),
        more="Longer rows are shortened. In scales, where columns have some.",
    ),
    Option(
        "row_quantile", (Number(0.5, 1.0), NONE), None,
        "At which quantile of their released norms rows are shortened; nothing: where the error of "
        "the covariance is least.",
        (COVARIANCE,), FITS, examples=(0.95,),
        more="For regressions .95 or more: shortening moves their coefficients.",
    ),
    Option(
        "center", (Flag(), NumberAFeature()), True,
        "Whether the mean is subtracted: true (found privately), false, or a public centre, one "
        "number a column.",
        IN_SPACE, FITS, unit="the data's", examples=(True,),
        more="Of mixtures rows are taken about a point beside the mean; about none, the means "
        "must be linearly independent.",
    ),
    Option(
        "center", (Flag(only=False), NumberAFeature()), False,
        "Nothing, or a public centre, one number a column, is subtracted: a stream's one pass "
        "cannot subtract a mean that is not known yet.",
        (PCA,), ("stream",), unit="the data's",
    ),
    Option(
        "center", (Flag(),), False,
        "Whether the mean is tracked as well.",
        (PCA,), ("tracking",),
    ),
    Option(
        "scale", (OneOf(("private",)), NumberAFeature(), NONE), None,
        "What columns are divided by: 'private' (each by its deviation, found privately, so that "
        "the components are those of the correlation matrix), public scales, one number a column "
        "(not on the command line), or nothing.",
        (PCA, COVARIANCE, ICA), FITS, unit="the data's", examples=("private",),
        more="Three rounds of noisy histograms of all columns find middles and scales, entries "
        "are clipped at 6 scales, and of PCA the second moment's own diagonal refines the "
        "scales for nothing. Public scales cost nothing; 0 leaves a column out. (A scaler of "
        "the rows before the fit would void the guarantee.)",
    ),
    Option(
        "ranges", (RangeAFeature(), NONE), None,
        "Public ranges of columns, each its smallest and its largest number, in order or by name: "
        "entries are clipped to them, and scales cost nothing.",
        (PCA, *WHOLE_MOMENT), PRIVATE, unit="the data's", examples=(((0.0, 120.0), (40.0, 300.0)),),
        more="Columns have half their width as scale; with ``scale='private'`` the deviations are "
        "then found within them, and no histograms are needed. For few rows.",
    ),
    Option(
        "winsorize", (Number(1e-3, 0.25), NONE), None,
        "With scale 'private', the share of a column's entries at either end that are moved to "
        "the column's quantile there, as the private histograms of the columns show it.",
        (PCA, COVARIANCE, ICA), FITS, examples=(0.01,),
        more="A robust fit for columns with long tails, at no cost. Means, scales and components "
        "are those of the clipped columns; a category's columns are left as they are. Quantiles "
        "that are publicly known are ``ranges``.",
    ),
    Option(
        "scale", (NumberAFeature(), NONE), None,
        "What columns are divided by: public scales, one number a column, or nothing: a stream's "
        "one pass cannot use scales that are not known yet.",
        (PCA,), ("stream",), unit="the data's",
    ),
    Option(
        "covariates", (SomeColumns(), NONE), None,
        "Columns, such as age or a site's indicator, whose linear effects on the others are "
        "released and taken off every row before the components are found: numbers from 0, or "
        "names.",
        (PCA,), FITS, examples=(("age",),),
        more="Only where the whole second moment is released, and beside no ``missing`` and no "
        "``row_norm='max'``.",
    ),
    Option(
        "within_sites", (Flag(),), False,
        "Whether each site's rows are centred by that site's own mean, so that components and "
        "covariances are those within sites. It publishes a noisy mean and number of rows of "
        "every site.",
        (PCA, COVARIANCE), SITES,
        more="Needs a private centre, and no ``missing``. ``site_means_`` has the means, and "
        "``without_site`` takes a site's off new rows (docs/sites.md).",
    ),
    Option(
        "covariance_type", (OneOf(("spherical", "diag", "full", "tied")),), "spherical",
        "What each component has: one variance ('spherical'), one for each column ('diag'), a "
        "matrix ('full'), or all the same matrix ('tied').",
        (MIXTURE,), FITS,
        more="Spherical components are found by the third moment, others by sums about candidates "
        "that are drawn from the second moment (docs/tensors.md).",
    ),
    Option(
        "noise_variance", (Number(SMALLEST, LARGEST, zero=True), NONE), None,
        "A public variance of every column within a component, in the data's units squared; left "
        "out, it is found from what is released.",
        (MIXTURE,), FITS, unit="the data's, squared", examples=(1.0,),
        more="For spherical components only.",
    ),
    Option(
        "pair", (OneOf(("auto", "full", "sketch")),), "auto",
        "How the second moment is released: 'full' (D x D), as a 'sketch', or 'auto': a sketch "
        "beyond 1000 columns (4000 words), or where its columns are given.",
        TENSORS, ("table",),
    ),
    Option(
        "alpha0", (Number(1e-3, 1e3, zero=True), OneOf(("auto",))), 0.0,
        "How mixed the topics of a document are: the sum of a Dirichlet law's concentrations; 0 "
        "for one topic a document, 1 for a few, more for many; 'auto': found from what is "
        "released.",
        (TOPICS,), FITS, examples=(1.0,),
        more="Above 0, how frequent words are is released as well. 'auto' is the largest, of 16 "
        "from 0.03 to 50, that the released moments allow (1 where noise hides which; not "
        "with a sketch): measured at epsilon = 1, within a factor of 2 of the true one.",
    ),
    Option(
        "clip_documents", (Flag(),), True,
        "Whether what documents contribute is clipped at a released quantile of its norms: far "
        "less noise for documents of more than a few words.",
        (TOPICS,), FITS,
        more="Without it nothing is released before the pairs.",
    ),
    Option(
        "budget_split",
        (
            Shares(
                (
                    *("missing", "columns", "scale", "center", "covariates", "moment"),
                    *("variance", "scores"),
                )
            ),
            NONE,
        ),
        None,
        "Fractions of the budget for the steps missing, columns, scale, center, covariates, "
        "moment, variance and scores: those that the fit takes, and no others.",
        (PCA,), FITS,
        examples=({"scale": 0.02, "center": 0.08, "moment": 0.88, "variance": 0.02},),
        privacy=True,
        more="By default 4, 14, 78 and 4 per cent of mu squared for scale, center, moment and "
        "variance; 8, 20, 69 and 3 per cent of epsilon with ``delta=0``. Before these come "
        "30 per cent for covariates, and with ``scale='private'`` without ranges 30 (40 of "
        "epsilon) for columns. 'variance' may be left out, but not of mechanism 'bingham'.",
    ),
    Option(
        "budget_split", (Shares(("scale", "center", "moment", "scores", "tensor", "sums")), NONE),
        None,
        "Fractions of the budget for the steps scale, center, moment, scores, tensor and sums: "
        "those that the fit takes, and no others.",
        (MIXTURE,), FITS,
        examples=(
            {**{"scale": 0.08, "center": 0.05, "scores": 0.05, "moment": 0.27, "tensor": 0.15},
             "sums": 0.4},
        ),
        privacy=True,
        more="'center' is taken if it is private, 'tensor' with spherical components.",
    ),
    Option(
        "budget_split", (Shares(("scale", "center", "moment", "tensor")), NONE), None,
        "Fractions of the budget for the steps scale (if documents are clipped), center (the "
        "words' frequencies, if alpha0 is above 0), moment and tensor.",
        (TOPICS,), FITS,
        examples=({"scale": 0.05, "moment": 0.55, "tensor": 0.4},),
        privacy=True,
    ),
    Option(
        "budget_split",
        (Shares(("missing", "columns", "scale", "center", "moment")), NONE),
        None,
        "Fractions of the budget for the steps missing, columns, scale, center and moment: those "
        "that the fit takes, and no others.",
        (COVARIANCE,), FITS,
        examples=({"scale": 0.08, "center": 0.1, "moment": 0.82},),
        privacy=True,
        more="By default 8, 10 and 82 per cent of mu squared for scale, center and moment; 12, 16 "
        "and 72 per cent of epsilon with ``delta=0``. With ``scale='private'`` and no ranges "
        "columns take 30 per cent (40 of epsilon) first.",
    ),
    Option(
        "budget_split", (Shares(("columns", "scale", "center", "moment", "cumulants")), NONE), None,
        "Fractions of the budget for the steps columns, scale, center, moment and cumulants: those "
        "that the fit takes, and no others.",
        (ICA,), FITS,
        examples=({"scale": 0.03, "center": 0.03, "moment": 0.29, "cumulants": 0.65},),
        privacy=True,
        more="By default 65 per cent of mu squared (of epsilon with ``delta=0``) for the "
        "cumulants; the rest as of a covariance.",
    ),
    Option(
        OF_SKETCH, (WholeNumber(), NONE), None,
        "Columns of the sketch, at least the components; left out, 4 times as many (2 times of "
        "'dpdispca').",
        (PCA, *TENSORS), PRIVATE, examples=(20,),
        more="Only of what is sketched: by mechanism, pair or protocol 'sketch', or a stream, "
        "which is beyond 1447 features if nothing is given.",
    ),
    Option(
        "whiten", (Flag(),), False,
        "Whether transform divides each score by the square root of its component's explained "
        "variance, so that all have variance 1.",
        (PCA,), PRIVATE,
        more="A score along a component of no variance is 0.",
    ),
    Option(
        "scores", (Flag(),), False,
        "Whether a histogram of the scores along the first two components is released as well: a "
        "private score plot, for a tenth of the budget.",
        (PCA,), FITS,
        more="``score_density_`` has it: as many cells as three deviations of their noise leave "
        "rows, the variances of the components being released for it.",
    ),
    Option(
        "scores_by", (SomeColumns(), TEXT, NONE), None,
        "With scores: a category of the schema, or columns that are 1 in rows of one group and 0 "
        "in others, as numbers from 0 or names. The scores are counted by group, and these "
        "columns have no part in the components.",
        (PCA,), FITS, examples=("stage",),
        more="It costs no more: a row is in one cell of one group, or in none where it has no "
        "group. Only where the whole second moment is released once, beside no ``covariates`` and "
        "no ``missing``.",
    ),
    Option(
        "power_rounds", (WholeNumber(1, MOST_POWER_ROUNDS), NONE), None,
        "Rounds of mechanism 'power', 1000 at most; 4 by default.",
        (PCA,), ("table",),
    ),
    Option(
        "publish", (OneOf(("end", "continual", "blocks")),), "end",
        "When a stream is released: once, at its end; after every block up to a horizon; or after "
        "every block without end, each with noise of its own.",
        (PCA,), ("stream",),
    ),
    Option(
        "horizon", (WholeNumber(), NONE), None,
        "The most blocks of a continual stream.",
        (PCA,), ("stream",), unit="blocks",
        more="Each call of :meth:`partial_fit` is one.",
    ),
    Option(
        "block_size", (WholeNumber(), NONE), None,
        "Rows folded in at a time.",
        (PCA,), ("tracking",), unit="rows",
        more="Larger blocks are truncated less often and so track a little better, for memory; by "
        "default the paper's 25, or ``n_components`` where that is more.",
    ),
    Option(
        "adaptive_rank", (Pair(), NONE), None,
        "One component more or less after a block whose last one's share of the strengths is above "
        "beta or below alpha.",
        (PCA,), ("tracking",), unit="per cent",
        more="The paper takes 1 and 10. Left out, the rank stays ``n_components``.",
    ),
    Option(
        "forgetting", (Number(0.0, 1.0, open_low=True),), 1.0,
        "What the old singular values are multiplied by at every block.",
        (PCA,), ("tracking",),
    ),
    Option(
        "forgetting", (Number(0.0, 1.0, open_low=True),), 1.0,
        "What the released sums of earlier blocks are multiplied by at every block.",
        (PCA,), ("stream",),
        more="Of ``publish='blocks'``; ``n_samples_`` then counts old rows as little as they "
        "weigh.",
    ),
    Option(
        "n_oversamples", (WholeNumber(0),), 10,
        "Directions tracked beyond those of the result.",
        (PCA,), ("tracking",),
        more="Each fold loses what lies outside the directions it keeps, so a few more bring the "
        "result 2 to 200 times nearer to the exact subspace (measured on the paper's data), "
        "for O(D) memory each. 0 is the paper's SSVD_r with rank r.",
    ),
    Option(
        "missing", (OneOf(("leave-out", "zero", "independent", "pairs")),), "leave-out",
        "What becomes of rows with missing entries: they are left out ('leave-out'), or kept. Then "
        "a missing entry is taken for the mean ('zero'), and corrected for by released counts of "
        "each column's entries ('independent') or of each pair's ('pairs', for few columns).",
        (PCA, COVARIANCE), PRIVATE,
        more="Rows that are left out are not counted: the result is of complete rows. A row with "
        "an infinite entry is always left out.",
    ),
    Option(
        "missing", (OneOf(("refuse", "leave-out", "fill")),), "refuse",
        "What becomes of rows with missing entries: they are refused, left out, or filled by "
        "regression on the directions tracked so far.",
        (PCA,), ("tracking",),
        more="A missing entry becomes its mean given the row's others, under a normal law of what "
        "is tracked (Tipping and Bishop 1999); the block is folded, and filled anew from that, "
        "until it changes little. Incremental SVD of filled rows is of Balzano and Wright (2013).",
    ),
    Option(
        "precision", (OneOf(("double", "single")),), "double",
        "The arithmetic in which rows are prepared, however they are stored: 'double', or "
        "'single', which is faster and used where its rounding does not show above the noise.",
        IN_SPACE, PRIVATE,
    ),
)  # fmt: skip
