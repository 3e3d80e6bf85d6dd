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
IN_OTHER_LANGUAGES = """
Patienten-Nr PatientenNr Patientennummer patientennr Fallnummer Fall-Nr. Probanden_Nr PersonenID
Versicherten-Nummer numéro_patient code_patient Numéro_de_séjour número_de_paciente
codigo_paciente NumeroHistoria numero_paziente codice_paziente Código_do_utente patientnummer
patiënt_nr Personnummer patientens_nr Fødselsnummer numer_pacjenta PESEL pacjent_id číslo_pacienta
hasta_no Hasta_Numaras\u0131 dosya_no
PatNr Patientencode Krankenversicherungsnummer Personalnummer Aktenzeichen Patientenkennung
num_patient no_dossier numero_malade code_personne numéro_sécurité_sociale matricule
num_expediente historia_clínica expediente numero_de_afiliado
codice_fiscale tessera_sanitaria num_caso codice_assistito
prontuário código_pessoa numero_do_processo
persoonsnummer burgerservicenummer zaaknummer deelnemernummer
kod_pacjenta numer_karty nr_przypadku kod_osoby numer_historii_choroby nr_ubezpieczonego
besöksnummer löpnummer kundnummer deltagarnummer patientkod journalnr
cpr_nr cprnummer sagsnummer forløbsnummer patientkode
rodné_číslo kód_pacienta číslo_případu číslo_pojištěnce číslo_chorobopisu
hasta_kodu TC_kimlik_no vaka_no sicil_no müşteri_no kat\u0131l\u0131mc\u0131_no protokol_no
"""
SPACED = ["Unnamed: 0", "patient id", "Patient ID", "N° dossier", "N°patient", "Case #", "#Fall"]
MEASURED = """
width humidity acid fluid amino_acid lipid thyroid steroid covid covid_cases paid valid solid grid
grid_x mid rapid void android centroid_x hybrid liquid wide idle idea ideal identity_score video
age bmi pixel_4_2 c1 c12 x1 ID1 ID3 IDH1 MID1 EID2 name_length number numbers number_of_visits
n_patients num_rooms rooms room_number key_signature index_of_refraction refractive_index
glycemic_index word_freq_email emails_sent telephone has_phone mail address_changes
first_name_length code area_code no nr hash patients subjects persons user_rating customer_age
case_fatality record_length row col order account sample_weight chart_height device_temperature
insurance_costs security idh SSN3 Fallhöhe Alter Größe Harnsäure caso_fatal fall_risk hastalik
número_de_visitas nombre_de_visites uric_acid acide lipid icd_code code_postal Nummer Anzahl_Fälle
codice_icd kod numer_sali journal_impact cas_no NIR CPR cpr_done postnummer kod_pocztowy
liczba_osob antal_patienter pocet_osob hasta_sayisi kimlik_dogrulama historia_familiar num_children
process_time case_mix pat_age il_kodu tani_kodu diagnoskod ydelseskode codice_postale lot_no
cislo_domu numero_de_hijos numero_figli episode barcode qrcode nombre_de_cas Postleitzahl
"""


def test_names_of_identifiers():
    assert not [n for n in [*IDENTIFIERS.split(), *SPACED] if not looks_like_identifier(n)]


def test_names_of_identifiers_in_other_languages():
    names = IN_OTHER_LANGUAGES.split()
    assert not [name for name in names if not looks_like_identifier(name)]


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
