"""The file of a fitted model: numpy's format with JSON inside, no pickle."""

from __future__ import annotations

import json
import os
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from eigenveil.errors import DataError, OutputError, PrivacyError, printable
from eigenveil.files import replacing
from eigenveil.models.certify import check_model
from eigenveil.models.result import EstimatorSpec, Result, check_model_arrays, made_of, parts_of
from eigenveil.privacy.certificate import certificate_from
from eigenveil.tables.schema import parse_schema

if TYPE_CHECKING:
    from eigenveil.models.stored import StoredModel

_MODEL_FORMAT = "eigenveil-model-3"
# What reading a cut, changed or foreign file raises.
_NOT_A_MODEL = (
    LookupError,
    ValueError,
    TypeError,
    AttributeError,
    OSError,
    EOFError,
    OverflowError,
    MemoryError,  # a damaged length
    SyntaxError,  # a damaged header of an array
    RuntimeError,  # an encrypted archive
    tokenize.TokenError,
    struct.error,
    zlib.error,
    zipfile.BadZipFile,
)


def write_model(path: str | os.PathLike[str], result: Result) -> None:
    factors = parts_of(result.released)
    arrays: dict[str, Any] = {n: v for n, v in factors.items() if isinstance(v, np.ndarray)}
    header = {
        "format": _MODEL_FORMAT,
        "estimator": result.spec.estimator,
        "parameters": result.spec.parameters,
        "features": result.features,
        "names": result.names,
        "schema": None if result.schema is None else result.schema.as_dict(),
        "numbers": {n: value for n, value in factors.items() if n not in arrays},
        "kept": None if result.whole is None else len(result.factors.components),
        "certificate": result.certificate.model_dump(mode="json"),
    }
    with replacing(Path(path)) as scratch, scratch.open("wb") as file:
        np.savez(file, header=np.array(json.dumps(header)), **arrays)


def read_model(path: str | os.PathLike[str], kind: type[StoredModel]) -> Result:
    with _opened(path) as (stored, header):
        if not kind._reads(header["estimator"]):
            raise KeyError(f"it was fitted by {header['estimator']}")
        arrays = {name: stored[name] for name in stored.files if name != "header"}
        check_model_arrays(arrays, header["features"], header["names"])
        factors = made_of(kind._FACTORS, arrays | header["numbers"])
        if {*arrays, *header["numbers"]} != parts_of(factors).keys():
            raise ValueError("it leaves out a number")
        kept, whole = header["kept"], factors
        factors = whole if kept is None else whole.first(kept)
        certificate = certificate_from(header["certificate"])
        found: dict[str, Any] = {
            "spec": EstimatorSpec(str(header["estimator"]), dict(header["parameters"])),
            "plan": kind._read_plan(certificate.plan),
            "factors": factors,
            "features": int(header["features"]),
            "names": None if header["names"] is None else tuple(map(str, header["names"])),
            "certificate": certificate,
            "schema": None if header["schema"] is None else parse_schema(header["schema"]),
            "whole": None if kept is None else whole,
        }
    try:
        result = Result(**found, loaded=True)
        check_model(result)
        return result
    except PrivacyError as error:
        error.message = f"{path}: {error.message}"
        raise


def estimator_of(path: str | os.PathLike[str]) -> str:
    """Name of the estimator that a model file holds."""
    with _opened(path) as (_, header):
        return str(header["estimator"])


@contextmanager
def _opened(path: str | os.PathLike[str]) -> Iterator[tuple[Any, dict[str, Any]]]:
    """A model's archive, by its directory no larger than the file is, and its header."""
    try:
        with zipfile.ZipFile(path) as archive:
            parts = archive.infolist()
        packed = any(part.compress_type != zipfile.ZIP_STORED for part in parts)
        if packed or sum(part.file_size for part in parts) > Path(path).stat().st_size:
            raise ValueError("it is packed, and no model is")
        with np.load(path, allow_pickle=False) as stored:
            header = json.loads(str(stored["header"][()]))
            if header["format"] != _MODEL_FORMAT:
                raise KeyError(header["format"])
            yield stored, dict(header)
    except (FileNotFoundError, NotADirectoryError):
        raise OutputError("no-model", path=path) from None
    except _NOT_A_MODEL as error:
        raise not_a_model(path, error) from None


def not_a_model(path: str | os.PathLike[str], error: Exception) -> DataError:
    # what numpy advises about pickles is no advice for strangers' files
    foreign = isinstance(error, zipfile.BadZipFile) or "pickle" in str(error)
    why = "no .npz file" if foreign else printable(error, most=200)
    return DataError("not-a-model", path=path, why=why)
