CREATE TABLE model (
  id INTEGER PRIMARY KEY,
  hash TEXT NOT NULL,
  preprocessing TEXT NOT NULL,
  name TEXT NOT NULL,
  UNIQUE (hash, preprocessing)
);
CREATE TABLE configuration (
  id INTEGER PRIMARY KEY,
  method TEXT NOT NULL,
  options TEXT NOT NULL,
  layer TEXT NOT NULL,
  absolute INTEGER NOT NULL,
  UNIQUE (method, options, layer, absolute)
);
CREATE TABLE image (
  id INTEGER PRIMARY KEY,
  hash TEXT NOT NULL,
  class INTEGER NOT NULL,
  name TEXT NOT NULL,
  UNIQUE (hash, class)
);
CREATE TABLE metric (
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,
  better TEXT NOT NULL
);
CREATE TABLE result (
  model INTEGER NOT NULL REFERENCES model (id),
  configuration INTEGER NOT NULL REFERENCES configuration (id),
  image INTEGER NOT NULL REFERENCES image (id),
  metric INTEGER NOT NULL REFERENCES metric (id),
  seed INTEGER NOT NULL,
  value REAL,
  undefined TEXT,
  seconds REAL NOT NULL,
  version TEXT NOT NULL,
  checksum TEXT,
  engine TEXT,
  instructions TEXT,
  PRIMARY KEY (model, configuration, image, metric, seed)
) WITHOUT ROWID;
CREATE TABLE worker (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  process INTEGER NOT NULL
);
CREATE TABLE claim (
  model INTEGER NOT NULL,
  configuration INTEGER NOT NULL,
  image INTEGER NOT NULL,
  worker INTEGER NOT NULL,
  PRIMARY KEY (model, configuration, image)
) WITHOUT ROWID;
CREATE TABLE experiment (
  id INTEGER PRIMARY KEY,
  hash TEXT NOT NULL UNIQUE,
  name TEXT NOT NULL,
  text TEXT NOT NULL,
  model INTEGER NOT NULL REFERENCES model (id),
  model_path TEXT NOT NULL,
  data_path TEXT NOT NULL,
  seed INTEGER NOT NULL,
  version TEXT NOT NULL
);
CREATE TABLE stage (
  experiment INTEGER NOT NULL REFERENCES experiment (id),
  position INTEGER NOT NULL,
  name TEXT NOT NULL,
  kind TEXT NOT NULL,
  part TEXT NOT NULL,
  PRIMARY KEY (experiment, position)
) WITHOUT ROWID;
CREATE TABLE member (
  experiment INTEGER NOT NULL,
  stage INTEGER NOT NULL,
  position INTEGER NOT NULL,
  configuration INTEGER NOT NULL REFERENCES configuration (id),
  family TEXT NOT NULL,
  title TEXT NOT NULL,
  place TEXT NOT NULL,
  note TEXT NOT NULL,
  PRIMARY KEY (experiment, stage, position)
) WITHOUT ROWID;
CREATE TABLE stage_metric (
  experiment INTEGER NOT NULL,
  stage INTEGER NOT NULL,
  position INTEGER NOT NULL,
  metric INTEGER NOT NULL REFERENCES metric (id),
  PRIMARY KEY (experiment, stage, position)
) WITHOUT ROWID;
CREATE TABLE experiment_image (
  experiment INTEGER NOT NULL,
  part TEXT NOT NULL,
  position INTEGER NOT NULL,
  image INTEGER NOT NULL REFERENCES image (id),
  PRIMARY KEY (experiment, part, position)
) WITHOUT ROWID;
CREATE TABLE image_issue (
  experiment INTEGER NOT NULL,
  part TEXT NOT NULL,
  position INTEGER NOT NULL,
  image TEXT NOT NULL,
  detail TEXT NOT NULL,
  kept INTEGER NOT NULL,
  PRIMARY KEY (experiment, part, position)
) WITHOUT ROWID;
