CREATE TEMP TABLE model AS SELECT id, hash, preprocessing, name FROM main.model;
CREATE TEMP VIEW result AS
SELECT model, configuration, image, metric, seed,
  CASE WHEN no_share THEN NULL ELSE value END AS value,
  CASE WHEN no_share THEN value || 'REASON' ELSE silence END AS undefined,
  seconds, version, NULL AS engine, NULL AS instructions
FROM (
  SELECT stored.*,
    NO_SHARE AS no_share
  FROM main.result AS stored
);
CREATE TEMP VIEW stage_metric AS SELECT * FROM main.asked;
CREATE TEMP VIEW experiment_image AS SELECT * FROM main.sight;
