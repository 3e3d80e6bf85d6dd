"""Python imports this at every start of it where this folder is on its path.

It is on the path of a test's aggregator, whose jobs are processes that FLARE starts: these, and no
others, are made to do wrong here.
"""

import sys

if "eigenveil.network.flare.job_process" in sys.orig_argv:
    import dishonest_job

    dishonest_job.install()
