"""Studies between organisations, carried by NVIDIA FLARE (the extra ``eigenveil[flare]``).

Nothing of FLARE is loaded by importing this package or :mod:`eigenveil`: only by the modules that
talk to it.
"""
