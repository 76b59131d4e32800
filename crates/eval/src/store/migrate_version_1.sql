DROP VIEW results;
ALTER TABLE result RENAME COLUMN silence TO undefined;
ALTER TABLE asked RENAME TO stage_metric;
ALTER TABLE sight RENAME TO experiment_image;
CREATE TABLE IF NOT EXISTS trouble (
  experiment INTEGER NOT NULL,
  part TEXT NOT NULL,
  position INTEGER NOT NULL,
  image TEXT NOT NULL,
  said TEXT NOT NULL,
  kept INTEGER NOT NULL,
  PRIMARY KEY (experiment, part, position)
) WITHOUT ROWID;
ALTER TABLE trouble RENAME COLUMN said TO detail;
ALTER TABLE trouble RENAME TO image_issue;
UPDATE result SET undefined = value || 'REASON', value = NULL
WHERE NO_SHARE;
