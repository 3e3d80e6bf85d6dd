"""Plans of tasks, from options by keyword."""

from eigenveil.models.options import Options
from eigenveil.models.task import task_named


def plan_of(task, *, features, noise_draws=1, path="table", **options):
    context = {"features": features, "noise_draws": noise_draws}
    return task_named(task).make_plan(Options(task, path, options), **context)
