"""What runs in the processes of a FLARE or Flower network: it moves files, and can read none.

These files are copied beside the network's own; they need the standard library and the network's
framework alone, have no keys and know nobody's.
"""
