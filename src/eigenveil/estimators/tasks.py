"""What can be computed: for each task its rounds, and how rows must come."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from eigenveil.estimators.mixture_pipeline import private_mixture
from eigenveil.estimators.pipeline import private_pca
from eigenveil.estimators.plans import BasePlan, Step
from eigenveil.estimators.rounds import Answers, Round
from eigenveil.estimators.settings import Plan
from eigenveil.estimators.tensor_settings import MixturePlan, TopicPlan
from eigenveil.estimators.topic_pipeline import private_topics
from eigenveil.moments.documents import as_documents
from eigenveil.moments.source import RowSource
from eigenveil.privacy.releases import Sharing

Task = Literal["pca", "gaussian-mixture", "topic-model"]
TASKS: tuple[Task, ...] = get_args(Task)


def rounds_of(
    plan: BasePlan,
    *,
    stored_single: bool,
    public_centre: NDArray[np.float64] | None = None,
    sharing: Mapping[Step, Sharing] | None = None,
    keep_all: bool = False,
) -> Generator[Round, Answers, Any]:
    """The rounds of a plan, whatever its task; ``keep_all`` as of mixtures and topics."""
    match plan:
        case Plan():
            return private_pca(
                plan, stored_single=stored_single, public_centre=public_centre, sharing=sharing
            )
        case MixturePlan():
            return private_mixture(
                plan,
                stored_single=stored_single,
                public_centre=public_centre,
                sharing=sharing,
                keep_all=keep_all,
            )
        case TopicPlan():
            return private_topics(plan, sharing=sharing, keep_all=keep_all)
        case _:
            raise AssertionError(f"{type(plan).__name__} is the plan of no task: a defect")


def rows_for(task: Task, rows: RowSource) -> RowSource:
    """Rows as a task takes them: documents for topics, any rows otherwise."""
    return as_documents(rows) if task == "topic-model" else rows
