"""``eigenveil console``: pages for a site's owner, a study's lead and an analyst alone.

The server's process loads neither the tasks nor scikit-learn: what takes rows or studies apart is
done by processes beside it (:mod:`eigenveil.console.workers`, :mod:`eigenveil.console.jobs`).
"""
