"""Messages carried by NVIDIA FLARE (the extra ``eigenveil[flare]``)."""
