SELECT model.name AS model, model.hash AS model_hash, model.preprocessing AS preprocessing,
  configuration.method AS method, coalesce(titled.title, '') AS title, configuration.options AS options, configuration.layer AS layer,
  configuration.absolute AS absolute, coalesce(seen.part, '') AS part, image.name AS image,
  image.hash AS image_hash, image.class AS class, metric.name AS metric, metric.better AS better,
  result.value AS value, result.undefined AS undefined, result.seconds AS seconds, result.seed AS seed,
  result.version AS version, result.engine AS engine, result.instructions AS instructions
FROM result
JOIN model ON model.id = result.model
JOIN configuration ON configuration.id = result.configuration
JOIN image ON image.id = result.image
JOIN metric ON metric.id = result.metric
LEFT JOIN (
  SELECT experiment.model AS model, experiment.seed AS seed, experiment_image.image AS image,
    CASE count(DISTINCT experiment_image.part) WHEN 1 THEN max(experiment_image.part) ELSE 'validation and test' END AS part
  FROM experiment_image JOIN experiment ON experiment.id = experiment_image.experiment
  GROUP BY experiment.model, experiment.seed, experiment_image.image
) AS seen ON seen.model = result.model AND seen.seed = result.seed AND seen.image = result.image
LEFT JOIN (
  SELECT configuration, group_concat(title, ' or ') AS title
  FROM (SELECT DISTINCT configuration, title FROM member ORDER BY configuration, title)
  GROUP BY configuration
) AS titled ON titled.configuration = result.configuration
