"""Images: NIfTI files and DICOM files, a row for each image and a column for each voxel of a mask.

All files are one source. The mask is public: it was not made of the rows, as a mask of a standard
brain is not. What headers say of a person is a label of the row at most, and no part of a result.
"""

from __future__ import annotations

import gzip
import math
import re
import warnings
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eigenveil.checks import library
from eigenveil.errors import DataError, printable
from eigenveil.files import Place, replacing
from eigenveil.io.files import GZIP_GROWTH, MOST_UNPACKED, reading, too_large, unreadable
from eigenveil.io.formats.arrays import Header, NamedArrayFile
from eigenveil.tables import names

_MOST_VOXELS = MOST_UNPACKED >> 4
_SAME = 1e-3  # millimetres, in which affines may differ
_BIDS = re.compile(r"sub-([A-Za-z0-9]+)")
_AXES = ("xyz", "yx")


@dataclass(frozen=True)
class Grid:
    """Where the voxels of an image lie."""

    shape: tuple[int, ...]  # Of one image: (x, y, z), or (rows, columns)
    affine: NDArray[np.float64] | None  # From indices to millimetres; `None` where it is not known

    def difference(self, other: Grid) -> str:
        if self.shape != other.shape:
            return f"has shape {_by(self.shape)}, not {_by(other.shape)}"
        if self.affine is None or other.affine is None:
            return ""
        furthest = float(np.abs(self.affine - other.affine).max())
        if furthest <= _SAME:
            return ""
        return f"has another affine: an entry differs by {furthest:.3g}"


@dataclass(frozen=True)
class VoxelMask:
    """Which voxels are columns."""

    path: Place
    grid: Grid
    inside: NDArray[np.bool_]


@dataclass(frozen=True)
class _Stored:
    """What a file's header says, and the labels of its rows."""

    grid: Grid
    count: int
    kind: np.dtype[Any]
    labels: dict[str, str | None]


class _Images(NamedArrayFile):
    """What both formats have in common."""

    label_names: Sequence[str] = ()

    def __init__(self, paths: Sequence[Path], *, mask: Path | None = None) -> None:
        self._paths = tuple(paths)
        self._mask = None if mask is None else read_mask(mask)
        first = self._paths[0]
        alone = len({path.parent for path in self._paths}) > 1 or len(self._paths) == 1
        super().__init__(first if alone else first.parent)
        self.files = self._paths

    def parts(self, step: int) -> Iterator[NDArray[Any]]:
        waiting: list[NDArray[Any]] = []
        for path, stored in zip(self._paths, self._headers, strict=True):
            images = 0
            with _damaged(path):
                for image in self._images(path):
                    waiting.append(image[self._inside].astype(self._stored.dtype, copy=False))
                    images += 1
                    if len(waiting) == step:
                        yield np.stack(waiting)
                        waiting = []
            if images != stored.count:
                raise unreadable(path, f"it has {images} images, and had {stored.count}")
        if waiting:
            yield np.stack(waiting)

    def row_labels(self, name: str) -> NDArray[np.object_]:
        if name == "image":
            counted = [str(n) for stored in self._headers for n in range(stored.count)]
            return np.fromiter(counted, np.object_)
        found = [each for h in self._headers for each in [h.labels.get(name)] * h.count]
        return np.fromiter(found, np.object_)

    def _header(self) -> Header:
        headers = []
        for path in self._paths:
            with _damaged(path):
                headers.append(self._look_at(path))
            headers[-1] = self._checked(path, headers[-1], headers[0])
        self._headers = headers
        first, grid = self._paths[0], headers[0].grid
        every = np.ones(grid.shape, dtype=np.bool_)
        self._inside = every if self._mask is None else self._mask.inside
        self.label_names = (*headers[0].labels, "image")
        if self._mask is None and self._inside.size > names.MOST_COLUMNS:
            size, most = self._inside.size, names.MOST_COLUMNS
            raise DataError("too-many-columns", whose=first, columns=size, most=most)
        kind = np.result_type(*(each.kind for each in headers))
        shape = (sum(each.count for each in headers), int(self._inside.sum()))
        return Header(shape, fortran=False, dtype=kind)

    def _checked(self, path: Place, stored: _Stored, first: _Stored) -> _Stored:
        wanted = first.grid
        whose: Place = self._paths[0]
        if self._mask is not None:
            wanted, whose = self._mask.grid, self._mask.path
        if problem := stored.grid.difference(wanted):
            raise DataError("other-grid", path=path, problem=problem, whose=whose)
        return stored

    def _names(self) -> Sequence[str]:
        return voxel_names(self._inside)

    @abstractmethod
    def _look_at(self, path: Place) -> _Stored:
        """What a file's header says."""

    @abstractmethod
    def _images(self, path: Place) -> Iterator[NDArray[Any]]:
        """The images of a file, in order."""


class NiftiImages(_Images):
    """NIfTI files: one image each, or one for each volume of a file of four dimensions.

    Labels of rows are the name of the file, the subject where its path has one as BIDS writes it
    (``sub-01``), and ``image``, the number of the volume from 0.
    """

    def _look_at(self, path: Place) -> _Stored:
        image = _nifti(path)
        subjects = _BIDS.findall(str(path))
        labels = {"file": path.name, "subject": subjects[-1] if subjects else None}
        shape = image.shape
        grid = Grid(tuple(shape[:3]), np.asarray(image.affine, dtype=np.float64))
        return _Stored(grid, shape[3] if len(shape) == 4 else 1, _kind_of(image), labels)

    def _images(self, path: Place) -> Iterator[NDArray[Any]]:
        stored = _nifti(path).dataobj
        if len(stored.shape) == 3:
            yield np.asarray(stored)
            return
        for volume in range(stored.shape[3]):
            yield np.asarray(stored[..., volume])


class DicomImages(_Images):
    """An image of one channel a file, or a frame of it, after rescale slope and intercept."""

    _TAGS = ("PatientID", "SeriesInstanceUID")

    def _look_at(self, path: Place) -> _Stored:
        found = _dicom(path, pixels=False)
        size = (int(found.get("Rows") or 0), int(found.get("Columns") or 0))
        if 0 in size or int(found.get("SamplesPerPixel") or 1) != 1:
            raise unreadable(path, "it has no image of one channel")
        count = int(found.get("NumberOfFrames") or 1)
        _check_size(path, size, count, 1, packed=True)
        labels = {name: str(found.get(name) or "") or None for name in self._TAGS}
        labels["file"] = path.name
        return _Stored(Grid(size, None), count, np.dtype(np.float64), labels)

    def _images(self, path: Place) -> Iterator[NDArray[Any]]:
        found = _dicom(path, pixels=True)
        pixels = np.asarray(found.pixel_array, dtype=np.float64)
        slope, intercept = found.get("RescaleSlope"), found.get("RescaleIntercept")
        pixels = pixels * float(1.0 if slope is None else slope)
        pixels += float(0.0 if intercept is None else intercept)
        yield from pixels if pixels.ndim == 3 else [pixels]


def voxel_names(inside: NDArray[np.bool_]) -> list[str]:
    """Names of the voxels of a mask, by their indices: ``x12_y34_z5``, or ``y12_x34`` of pixels."""
    axes = _AXES[0] if inside.ndim == 3 else _AXES[1]
    places = np.argwhere(inside).tolist()
    return ["_".join(f"{a}{i}" for a, i in zip(axes, place, strict=True)) for place in places]


def read_mask(path: Place) -> VoxelMask:
    """A mask: a NIfTI image, or an array in a ``.npy`` file; voxels that are not 0 are inside."""
    with _damaged(path):
        if path.suffix.lower() == ".npy":
            entries, affine = np.load(path, allow_pickle=False), None
        else:
            image = _nifti(path)
            entries, affine = np.asarray(image.dataobj), np.asarray(image.affine, np.float64)
            entries = entries[..., 0] if entries.ndim == 4 and entries.shape[3] == 1 else entries
    if entries.ndim not in (2, 3) or entries.dtype.kind not in "biuf":
        raise unreadable(path, f"it is {entries.dtype} of shape {_by(entries.shape)}, no mask")
    inside = np.asarray((entries != 0) & (entries == entries))  # NaN is outside
    if not inside.any():
        raise unreadable(path, "no voxel of the mask is inside")
    return VoxelMask(path, Grid(inside.shape, affine), inside)


# -- The libraries.


def _nifti(path: Place) -> Any:
    nibabel = library("nibabel", extra="images", what="A NIfTI image")
    path.open("rb").close()  # the system's own words for what is wrong
    image = nibabel.load(path, keep_file_open=True)
    if len(image.shape) not in (3, 4):
        raise unreadable(path, f"it has shape {_by(image.shape)}, not 3 or 4 dimensions")
    kind = image.get_data_dtype()
    if kind.kind not in "biuf":
        raise unreadable(path, f"its voxels are {kind}, not numbers")
    count = image.shape[3] if len(image.shape) == 4 else 1
    packed = path.suffix.lower() == ".gz"
    _check_size(path, image.shape[:3], count, kind.itemsize, packed=packed)
    return image


def _kind_of(image: Any) -> np.dtype[Any]:
    stored = image.get_data_dtype()
    scaled = (float(image.dataobj.slope), float(image.dataobj.inter)) != (1.0, 0.0)
    single = not scaled and np.can_cast(stored, np.float32, "safe")
    return np.dtype(np.float32 if single else np.float64)


def _dicom(path: Place, *, pixels: bool) -> Any:
    pydicom = library("pydicom", extra="images", what="A DICOM image")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they quote what headers say of a person
        return pydicom.dcmread(path, stop_before_pixels=not pixels)


def _check_size(
    path: Place, shape: Sequence[int], count: int, itemsize: int, *, packed: bool
) -> None:
    """Refuse images larger than are read, or than a file of this size can have."""
    voxels, size = math.prod(shape), Path(path).stat().st_size
    if voxels > _MOST_VOXELS:
        why = f"an image has {voxels:,} voxels, and at most {_MOST_VOXELS:,} are read"
    elif voxels * count * itemsize > size * (GZIP_GROWTH if packed else 1):
        why = f"{voxels * count:,} voxels cannot be in its {size:,} bytes"
    else:
        return
    raise too_large(path, why)


@contextmanager
def _damaged(path: Place) -> Iterator[None]:
    """Turn whatever a library raises of a damaged file into a DataError that names it."""
    try:
        with reading(path):
            yield
    except (DataError, GeneratorExit):
        raise
    except Exception as error:  # errors of their own, which are no subclasses of the usual ones
        raise unreadable(path, printable(error, most=200).rstrip(".")) from None


def _by(shape: Sequence[int]) -> str:
    return " x ".join(map(str, shape))


# -- Components as images.


def write_maps(model: Any, mask: str | Path, folder: str | Path) -> list[str]:
    """Write a fitted PCA of images as NIfTI images on the grid of its mask.

    ``component-1.nii.gz``, ... and ``mean.nii.gz``, in single precision, 0 where there is no
    column. They hold what was released, and may be published as the model may.

    Parameters
    ----------
    model : fitted PrivatePCA or FederatedPCA
        Of images.
    mask : str or Path
        The NIfTI mask of the fit, which says where voxels lie.
    folder : str or Path
        Where they are written; it is there.

    Returns
    -------
    list of str
        Their names.

    Raises
    ------
    DataError
        When the model is not one of voxels of this mask; OutputError when a file cannot be written.
    """
    nibabel = library("nibabel", extra="images", what="A NIfTI image")
    found = read_mask(Path(mask))
    names = [str(name) for name in getattr(model, "feature_names_in_", ())]
    place = {name: number for number, name in enumerate(voxel_names(found.inside))}
    wanted = [place[name] for name in names if name in place]
    components = getattr(model, "components_", None)
    if components is None or not names or len(wanted) != len(names):
        raise DataError("not-voxels", mask=mask)
    if found.grid.affine is None:
        raise DataError("no-grid", mask=mask)
    maps = {f"component-{number}": row for number, row in enumerate(components, start=1)}
    written = []
    for name, values in {**maps, "mean": model.mean_}.items():
        voxels = np.zeros(int(found.inside.sum()), dtype=np.float32)
        voxels[wanted] = values
        image = np.zeros(found.grid.shape, dtype=np.float32)
        image[found.inside] = voxels
        file = f"{name}.nii.gz"
        with replacing(Path(folder) / file) as scratch:
            stored = nibabel.Nifti1Image(image, found.grid.affine).to_bytes()
            scratch.write_bytes(gzip.compress(stored, mtime=0))
        written.append(file)
    return written
