"""What an object holds, found by walking everything that it refers to."""

import gc
import types

import numpy as np

_NOT_ITS_OWN = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, str, bytes)


def held_by(*roots):
    """Every object that can be reached, without classes, modules and functions."""
    seen, waiting = {}, list(roots)
    while waiting:
        each = waiting.pop()
        if id(each) in seen or isinstance(each, _NOT_ITS_OWN):
            continue
        seen[id(each)] = each
        if isinstance(each, np.ndarray):
            waiting.append(each.base)  # a view holds all of its buffer
            if each.dtype != object:
                continue
        if isinstance(each, types.MethodType):
            waiting.append(each.__self__)
        waiting.extend(gc.get_referents(each))
    return list(seen.values())


def arrays_of(*roots):
    """Every array that can be reached."""
    return [each for each in held_by(*roots) if isinstance(each, np.ndarray)]


def numbers_of(*roots):
    """Every number that can be reached."""
    return [each for each in held_by(*roots) if isinstance(each, int | float | np.generic)]


def contents_of(*roots):
    """Bytes of every array and every number: two equal ones hold the same."""
    arrays = sorted((a.dtype.str, a.shape, a.tobytes()) for a in arrays_of(*roots))
    return arrays, sorted(repr(each) for each in numbers_of(*roots))
