"""Images: NIfTI and DICOM files, a row for each image, a column for each voxel of a mask or region.

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
from eigenveil.moments.source import rechunk
from eigenveil.tables import names

_MOST_VOXELS = MOST_UNPACKED >> 4
_AT_ONCE = 1 << 22  # Voxels that are read together: a read has a cost of its own
_SAME = 1e-3  # millimetres, in which affines may differ
_BIDS = re.compile(r"sub-([A-Za-z0-9]+)")
_AXES, _REGION = ("xyz", "yx"), "region_"
_VOXEL = re.compile(r"(?:x(?P<x>\d+)_)?y(?P<y>\d+)_(?:z(?P<z>\d+)|x(?P<column>\d+))")


@dataclass(frozen=True)
class Grid:
    """Where the voxels of an image lie."""

    shape: tuple[int, ...]  # Of one image: (x, y, z), or (rows, columns)
    affine: NDArray[np.float64] | None  # From indices to millimetres; `None` where it is not known

    def difference(self, other: Grid) -> str:
        if self.shape != other.shape:
            return f"shape {_by(self.shape)}, not {_by(other.shape)}"
        if self.affine is None or other.affine is None:
            return ""
        furthest = float(np.abs(self.affine - other.affine).max())
        if furthest <= _SAME:
            return ""
        return f"an affine that differs by {furthest:.3g} in an entry"


@dataclass(frozen=True)
class VoxelMask:
    """Which voxels are columns."""

    path: Place
    grid: Grid
    inside: NDArray[np.bool_]

    def names(self) -> list[str]:
        return voxel_names(self.inside)

    def rows(self, images: NDArray[Any]) -> NDArray[Any]:
        """The columns of images, which lie along the first axis."""
        return images[:, self.inside]

    def voxels(self, values: NDArray[Any]) -> NDArray[Any]:
        """What the voxels inside show where the columns have these values."""
        return values


@dataclass(frozen=True)
class Regions(VoxelMask):
    """Regions of voxels, the mean over each of which is a column."""

    numbers: NDArray[np.int64]
    region: NDArray[np.intp]  # Of each voxel inside: its place in the numbers

    @classmethod
    def of(cls, mask: VoxelMask, entries: NDArray[Any]) -> Regions:
        numbers, region = np.unique(entries[mask.inside], return_inverse=True)
        with np.errstate(invalid="ignore"):
            whole = numbers.astype(np.int64)
        if not np.array_equal(whole, numbers) or whole[0] < 0:
            raise unreadable(mask.path, "its regions are not numbered by whole numbers from 1")
        return cls(mask.path, mask.grid, mask.inside, whole, region)

    def names(self) -> list[str]:
        return [f"{_REGION}{number}" for number in self.numbers]

    def rows(self, images: NDArray[Any]) -> NDArray[Any]:
        sums = [np.bincount(self.region, each) for each in images[:, self.inside]]
        return np.array(sums) / np.bincount(self.region)

    def voxels(self, values: NDArray[Any]) -> NDArray[Any]:
        return values[self.region]


@dataclass(frozen=True)
class _Stored:
    """What a file's header says, and the labels of its rows."""

    grid: Grid
    count: int
    kind: np.dtype[Any]
    labels: dict[str, str | None]


class _Images(NamedArrayFile):
    label_names: Sequence[str] = ()

    def __init__(
        self, paths: Sequence[Path], *, mask: Path | None = None, regions: bool = False
    ) -> None:
        self._paths = tuple(paths)
        if regions and mask is None:
            raise DataError("regions-without-mask")
        self._mask = None if mask is None else read_mask(mask, regions=regions)
        first = self._paths[0]
        alone = len({path.parent for path in self._paths}) > 1 or len(self._paths) == 1
        super().__init__(first if alone else first.parent)
        self.files = self._paths

    def parts(self, step: int) -> Iterator[NDArray[Any]]:
        for (part,) in rechunk(self._rows(), step):
            yield part

    def _rows(self) -> Iterator[tuple[NDArray[Any]]]:
        for path, stored in zip(self._paths, self._headers, strict=True):
            count = 0
            with _damaged(path):
                for images in self._images(path):
                    yield (self._columns.rows(images).astype(self._stored.dtype, copy=False),)
                    count += len(images)
            if count != stored.count:
                raise unreadable(path, f"it has {count} images, and had {stored.count}")

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
        self._columns = VoxelMask(first, grid, every) if self._mask is None else self._mask
        said = (n for n in headers[0].labels if any(h.labels[n] is not None for h in headers))
        self.label_names = (*said, "image")  # as a table without a column: one that no file has
        if self._mask is None and every.size > names.MOST_COLUMNS:
            size, most = every.size, names.MOST_COLUMNS
            raise DataError("too-many-columns", whose=first, columns=size, most=most)
        kind = np.result_type(*(each.kind for each in headers))
        shape = (sum(each.count for each in headers), len(self._names()))
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
        return self._columns.names()

    @abstractmethod
    def _look_at(self, path: Place) -> _Stored:
        """What a file's header says."""

    @abstractmethod
    def _images(self, path: Place) -> Iterator[NDArray[Any]]:
        """The images of a file in order, some at a time: along the first axis."""


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
            yield np.asarray(stored)[None]
            return
        step = max(1, _AT_ONCE // math.prod(stored.shape[:3]))
        for start in range(0, stored.shape[3], step):
            yield np.moveaxis(np.asarray(stored[..., start : start + step]), -1, 0)


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
        yield pixels if pixels.ndim == 3 else pixels[None]


def voxel_names(inside: NDArray[np.bool_]) -> list[str]:
    """Names of the voxels of a mask, by their indices: ``x12_y34_z5``, or ``y12_x34`` of pixels."""
    axes = _AXES[0] if inside.ndim == 3 else _AXES[1]
    places = np.argwhere(inside).tolist()
    return ["_".join(f"{a}{i}" for a, i in zip(axes, place, strict=True)) for place in places]


def voxel_places(names: Sequence[str]) -> NDArray[np.intp] | None:
    """The indices x, y, z of what such names say, shape (n, 3); `None` where one is no voxel's.

    Pixels lie at z = 0.
    """
    found = [_VOXEL.fullmatch(name) for name in names]
    places = [(m["x"] or m["column"], m["y"], m["z"] or 0) for m in found if m]
    if not places or len(places) < len(found):
        return None
    return np.array(places).astype(np.intp)


def read_mask(path: Place, *, regions: bool = False) -> VoxelMask:
    """A mask: a NIfTI image, or an array in a ``.npy`` file; voxels that are not 0 are inside.

    Of ``regions`` its entries are the regions' numbers.
    """
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
    mask = VoxelMask(path, Grid(inside.shape, affine), inside)
    return Regions.of(mask, entries) if regions else mask


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
    with warnings.catch_warnings(action="ignore"):  # they quote what headers say of a person
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


# -- Maps: what a result says of every voxel, as images.


def write_maps(model: Any, mask: str | Path, folder: str | Path) -> list[str]:
    """Write what a result says of every voxel as NIfTI images on the grid of its mask.

    ``maps.nii.gz`` has a volume for each component of a PCA (entries of ``components_``), or for
    each source of an ICA (columns of ``mixing_``: what a voxel shows where the source is 1), and
    ``mean.nii.gz`` one; in single precision, 0 outside. Affine and header are the mask's, which is
    public, and all else was released: they may be published as the model may.

    Parameters
    ----------
    model : fitted PrivatePCA, FederatedPCA, PrivateICA or FederatedICA
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
        ``no-maps``, ``not-voxels`` where the columns are not the voxels of this mask, ``no-grid``;
        OutputError when a file cannot be written.
    """
    nibabel = library("nibabel", extra="images", what="A NIfTI image")
    columns = list(getattr(model, "feature_names_in_", ()))
    of_regions = bool(columns) and columns[0].startswith(_REGION)
    found = read_mask(Path(mask), regions=of_regions)
    mixing, mean = getattr(model, "mixing_", None), getattr(model, "mean_", None)
    maps = getattr(model, "components_", None) if mixing is None else mixing.T
    if maps is None or mean is None:
        raise DataError("no-maps", model=type(model).__name__)
    if columns != found.names():
        what, features = "regions" if of_regions else "voxels", model.n_features_in_
        count = len(found.names())
        raise DataError("not-voxels", mask=mask, features=features, count=count, what=what)
    if found.grid.affine is None:
        raise DataError("no-grid", mask=mask)
    header = nibabel.load(mask).header.copy()
    header.set_data_dtype(np.float32)
    written = {"maps.nii.gz": maps.T, "mean.nii.gz": mean}
    for name, values in written.items():
        image = np.zeros(found.grid.shape + values.shape[1:], dtype=np.float32)
        image[found.inside] = found.voxels(values)
        stored = nibabel.Nifti1Image(image, found.grid.affine, header).to_bytes()
        with replacing(Path(folder) / name) as scratch:
            scratch.write_bytes(gzip.compress(stored, mtime=0))
    return list(written)
