"""Small images, as NIfTI's and DICOM's own libraries write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pydicom
from pydicom.dataset import FileDataset, FileMetaDataset
from pydicom.uid import ExplicitVRLittleEndian

AFFINE = np.array([[2.0, 0, 0, -4], [0, 2, 0, -5], [0, 0, 2, -3], [0, 0, 0, 1]])


def brain(path: Path, image: Any, *, affine: Any = AFFINE, stored: Any = None) -> Path:
    """A NIfTI image, whose entries are of the type ``stored`` in its file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    made = nibabel.Nifti1Image(image, affine, dtype=image.dtype)
    made.header.set_data_dtype(image.dtype if stored is None else stored)
    nibabel.save(made, path)
    return path


def slice_file(
    path: Path,
    pixels: Any,
    *,
    patient: str | None = "p1",
    slope: float | None = 2.0,
    frames: int | None = None,
) -> Path:
    """A DICOM image of one channel, or of some frames."""
    path.parent.mkdir(exist_ok=True)
    meta = FileMetaDataset()
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    meta.MediaStorageSOPClassUID = pydicom.uid.CTImageStorage
    meta.MediaStorageSOPInstanceUID = pydicom.uid.generate_uid()
    made = FileDataset(str(path), {}, file_meta=meta, preamble=bytes(128))
    made.PatientName, made.SeriesInstanceUID = "Doe^Jane", "1.2.3"
    if patient is not None:
        made.PatientID = patient
    made.Rows, made.Columns = pixels.shape[-2:]
    made.SamplesPerPixel, made.PhotometricInterpretation = 1, "MONOCHROME2"
    made.BitsAllocated = made.BitsStored = 16
    made.HighBit, made.PixelRepresentation = 15, 0
    if frames is not None:
        made.NumberOfFrames = frames
    if slope is not None:
        made.RescaleSlope, made.RescaleIntercept = slope, -1000
    made.PixelData = pixels.astype("<u2").tobytes()
    made.save_as(path, enforce_file_format=True)
    return path
