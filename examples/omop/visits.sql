-- One row a visit, of the tables of OMOP's common data model (5.3 and 5.4), which schema.toml reads.
-- Each row is made of one visit's own entries: nothing here depends on other persons.
SELECT
  v.visit_occurrence_id,
  v.person_id,
  p.gender_concept_id,
  p.birth_datetime,
  v.visit_concept_id,
  v.visit_start_date,
  AVG(CASE WHEN m.measurement_concept_id = 3004249 THEN m.value_as_number END) AS systolic,
  AVG(CASE WHEN m.measurement_concept_id = 3012888 THEN m.value_as_number END) AS diastolic,
  AVG(CASE WHEN m.measurement_concept_id = 3027018 THEN m.value_as_number END) AS heart_rate,
  AVG(CASE WHEN m.measurement_concept_id = 3020891 THEN m.value_as_number END) AS temperature
FROM visit_occurrence v
JOIN person p ON p.person_id = v.person_id
LEFT JOIN measurement m ON m.visit_occurrence_id = v.visit_occurrence_id
GROUP BY
  v.visit_occurrence_id, v.person_id, p.gender_concept_id, p.birth_datetime, v.visit_concept_id,
  v.visit_start_date
