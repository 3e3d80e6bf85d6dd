"""Names that look like identifiers are found, and those of measurements are not."""

import pytest

from eigenveil.errors import DataError
from eigenveil.tables.names import check_identifiers, looks_like_identifier

IDENTIFIERS = """
id ID Id ids patient_id PatientID patientId PATIENT_ID patient.id patientid subjectid Subject-ID
id_patient ID_Number user_id userid customer_id CustomerID record_id recordid row_id rowid caseid
encounter_id hadm_id stay_id SEQN eid IID pid uid patient_uid uuid row_uuid guid mrn MRN
patient_mrn ssn SSN patient_no patient_nr PatientNumber record_number case_no account_number
phone_number nhs_number patient_hash subject_key participant respondent subject patient index
level_0 social_security_number medical_record_number personnummer sample_id device_id household_id
__index_level_0__
"""
SPACED = ["Unnamed: 0", "patient id", "Patient ID"]
MEASURED = """
width humidity acid fluid amino_acid lipid thyroid steroid covid covid_cases paid valid solid grid
grid_x mid rapid void android centroid_x hybrid liquid wide idle idea ideal identity_score video
age bmi pixel_4_2 c1 c12 x1 ID1 ID3 IDH1 MID1 EID2 name_length number numbers number_of_visits
n_patients num_rooms rooms room_number key_signature index_of_refraction refractive_index
glycemic_index word_freq_email emails_sent telephone has_phone mail address_changes
first_name_length code area_code no nr hash patients subjects persons user_rating customer_age
case_fatality record_length row col order account sample_weight chart_height device_temperature
insurance_costs security idh SSN3
"""


def test_names_of_identifiers():
    assert not [n for n in [*IDENTIFIERS.split(), *SPACED] if not looks_like_identifier(n)]


def test_names_of_measurements():
    assert not [name for name in MEASURED.split() if looks_like_identifier(name)]


def test_names_of_people_are_such_in_columns_of_text_only():
    names = ["name", "last_name", "LastName", "surname", "email", "home_email"]
    assert not [name for name in names if not looks_like_identifier(name, is_text=True)]
    assert not [name for name in names if looks_like_identifier(name)]


def test_the_refusal_names_the_columns_and_the_ways_out():
    check_identifiers("rows.csv", None)
    check_identifiers("rows.csv", ["age", "width"])
    with pytest.raises(DataError, match=r"rows\.csv: column 'patient_id' looks like") as caught:
        check_identifiers("rows.csv", ["age", "patient_id"])
    assert caught.value.code == "identifier-column"
    for way in ("--unit", "--exclude", "role = 'feature'"):
        assert way in caught.value.hint
    with pytest.raises(DataError, match="column 'id' looks like an identifier, as does 'mrn'"):
        check_identifiers("rows.csv", ["id", "mrn"])
