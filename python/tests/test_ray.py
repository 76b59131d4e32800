"""Batches of pictures, and experiments on a local cluster of two workers."""

import os
import pickle
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import small_experiment

import monosplit as ms
from monosplit.ray import driver
from monosplit.ray.meter import Meter
from monosplit.ray.workers import lacking

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_pictures_in_every_form_have_the_maps_of_the_model(model, photograph):
    pixels = ms._monosplit.decode_picture(photograph)
    explain = ms.ray.Explain(ms.assets.network(), ["splitcam", ("lrp", {"gamma": 0.1})])
    expected = model.explain([photograph, photograph], "splitcam")
    for batch in ({"bytes": [photograph] * 2}, {"image": np.stack([pixels] * 2)}):
        found = pickle.loads(pickle.dumps(explain))({**batch, "number": [7, 8]})
        assert np.array_equal(found["splitcam"], expected.maps)
        assert found["class"].tolist() == expected.classes and found["class_name"].tolist() == expected.class_names
        assert found["probability"].tolist() == expected.probabilities
        assert found["number"] == [7, 8] and found["reason"].tolist() == ["", ""]
    lrp = model.explainer("lrp", gamma=0.1, pictures=True).explain([photograph] * 2)
    assert np.array_equal(found["lrp"], lrp.maps)


def test_grey_and_transparent_pixels_are_pictures(photograph):
    pixels = ms._monosplit.decode_picture(photograph)
    explain = ms.ray.Explain(ms.assets.network(), ["gradient"])
    grey = pixels[..., 1]
    batch = np.empty(5, dtype=object)
    opaque = np.full((*grey.shape, 1), 255, np.uint8)
    batch[:] = [pixels, np.concatenate([pixels, opaque], 2), grey, grey[..., np.newaxis], np.stack([grey] * 3, 2)]
    found = explain({"image": batch})
    assert found["reason"].tolist() == [""] * 5
    assert np.array_equal(found["gradient"][0], found["gradient"][1])
    for other in (2, 3):
        assert np.array_equal(found["gradient"][other], found["gradient"][4])


def test_pictures_that_cannot_be_read_are_rows_with_a_reason(photograph, tmp_path):
    (tmp_path / "cat.png").write_bytes(photograph)
    (tmp_path / "broken.png").write_bytes(photograph[:1000])
    paths = [str(tmp_path / name) for name in ("broken.png", "cat.png", "none.png")]
    found = ms.ray.Explain(ms.assets.network(), {"why": "gradcam"})({"path": paths})
    assert found["path"] == paths
    assert found["class"][[0, 2]].tolist() == [-1, -1] and found["class"][1] >= 0
    assert np.isnan(found["why"][[0, 2]]).all() and np.isfinite(found["why"][1]).all()
    assert found["reason"][1] == "" and "none.png" in found["reason"][2] and "broken.png" in found["reason"][0]
    nothing = ms.ray.Explain(ms.assets.network(), ["gradcam"], maps=None)({"bytes": [b"", None]})
    assert nothing["class"].tolist() == [-1, -1] and "gradcam" not in nothing and all(nothing["reason"])


def test_classes_and_other_targets_are_followed(model, photograph):
    for target in (5, model.class_names[5], ms.target.Contrast(5, 3)):
        found = ms.ray.Explain(ms.assets.network(), ["splitcam"], target=target)({"bytes": [photograph]})
        expected = model.explain(photograph, "splitcam", target=target)
        assert np.array_equal(found["splitcam"], expected.maps), target


def test_wrong_batches_and_options_say_what_to_do(photograph):
    with pytest.raises(ValueError, match="at least one method"):
        ms.ray.Explain(ms.assets.network(), [])
    with pytest.raises(ValueError, match="floating-point"):
        ms.ray.Explain(ms.assets.network(), ["splitcam"], maps="int8")
    explain = ms.ray.Explain(ms.assets.network(), ["splitcam"])
    with pytest.raises(ValueError, match="image=COLUMN"):
        explain({"photo": [photograph]})
    with pytest.raises(ValueError, match="rename"):
        explain({"bytes": [photograph], "class": [1]})


def test_batches_are_explained_without_ray():
    program = (
        "import sys, monosplit as ms; sys.modules['ray'] = None\n"
        "e = ms.ray.Explain(ms.assets.network(), ['splitcam'])\n"
        "assert e({'bytes': [ms.assets.photograph()]})['class_name'] == ['Bengal']\n"
        "try: ms.ray.evaluate('x.toml')\n"
        "except ImportError as error: assert 'monosplit[ray]' in str(error)\n"
        "else: raise SystemExit('no error')"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


@pytest.mark.parametrize("example", ["multiprocessing", "dask", "pyspark", "daft"])
def test_examples_map_batches_without_ray(example, photograph, tmp_path):
    pytest.importorskip(example)
    if example == "pyspark" and shutil.which("java") is None:
        pytest.skip("Spark needs Java")
    for number in range(5):
        (tmp_path / f"{number}.png").write_bytes(photograph if number != 2 else b"no picture")
    out = tmp_path / "maps.npz"
    subprocess.run([sys.executable, str(EXAMPLES / f"explain_{example}.py"), str(tmp_path), str(out)], check=True, timeout=300)
    with np.load(out, allow_pickle=False) as found:
        assert [Path(path).name for path in found["path"]] == [f"{number}.png" for number in range(5)]
        assert found["reason"][2] and not any(found["reason"][[0, 1, 3, 4]])
        expected = ms.load(ms.assets.network()).explain(photograph, "splitcam").maps[0]
        np.testing.assert_allclose(found["splitcam"][4], expected, rtol=1e-4, atol=1e-6 * np.abs(expected).max())


def test_progress_tells_rate_time_left_and_failures_by_reason():
    now = [0.0]
    meter = Meter("comparison", 1000, 100, shown=False, clock=lambda: now[0])
    assert meter.line() == "comparison: 100 of 1,000 rows"
    now[0] = 10.0
    meter.advance(300)
    meter.fail("the image is gone", 200)
    assert meter.line() == "comparison: 400 of 1,000 rows, 30.0 rows/s, 13 s left, 200 failed: the image is gone"


def test_what_a_cluster_lacks_is_said():
    assert lacking({"num_cpus": 1, "num_gpus": 0}, {"CPU": 2.0}) == ""
    assert lacking({"num_cpus": 1, "num_gpus": 0.25}, {"CPU": 2.0, "GPU": 1.0}) == ""
    found = lacking({"num_cpus": 4, "num_gpus": 1}, {"CPU": 2.0})
    assert found == "a worker asks for 4 processors, the cluster has 2; a worker asks for 1 GPUs, the cluster has 0"


def test_workers_that_cannot_start_are_an_error_in_a_cluster_of_ones_own(monkeypatch, tmp_path):
    ray = pytest.importorskip("ray")
    path = small_experiment.make(tmp_path / "experiment", images=1)
    ended = []
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", lambda **options: options)
    monkeypatch.setattr(ray, "shutdown", lambda: ended.append(True))
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 2.0})
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with pytest.raises(ValueError, match="asks for 1 GPUs, the cluster has 0"):
        ms.ray.evaluate(path, store=tmp_path / "store.sqlite", num_gpus=1)
    assert ended


@pytest.fixture(scope="module")
def experiment(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cluster")
    path = small_experiment.make(folder / "experiment")
    small_experiment.alone(path, folder / "alone.sqlite")
    return path, folder / "alone.sqlite"


def test_a_writer_that_died_is_noticed_though_no_more_rows_come():
    class Dead(Exception):
        pass

    def get(ref):
        raise Dead(ref)

    ray = SimpleNamespace(wait=lambda refs, timeout: (refs, []), get=get, exceptions=SimpleNamespace(RayTaskError=KeyError))
    writer = SimpleNamespace(put=SimpleNamespace(remote=lambda blocks: "the block"))
    sink = driver._Sink(ray, writer)
    sink.flush_old()
    sink.add(("rows",), driver.BLOCK_ROWS)
    with pytest.raises(Dead, match="the block"):
        sink.flush_old()


@pytest.fixture(scope="module")
def cluster():
    ray = pytest.importorskip("ray")
    # Ray's workers yield to whatever else this machine does; the tests would take minutes on a machine in use.
    os.environ.setdefault("RAY_worker_niceness", "0")
    ray.init("local", num_cpus=3, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield ray
    ray.shutdown()


def test_a_cluster_has_the_rows_of_one_process_and_goes_on(cluster, experiment, tmp_path, capsys):
    path, alone = experiment
    store = tmp_path / "cluster.sqlite"
    expected = small_experiment.rows(alone)
    report = ms.ray.evaluate(path, store=store, workers=2)
    assert small_experiment.rows(store) == expected
    assert report.rows == report.new == len(expected) and report.worker_deaths == 0
    said = capsys.readouterr().err
    assert "SplitGrad: best by localisation is" in said and "1 left out" in said and "rows/s" in said
    assert small_experiment.report(store, tmp_path / "a") == small_experiment.report(alone, tmp_path / "b")
    connection = sqlite3.connect(store)
    assert connection.execute("SELECT count(*) FROM experiment").fetchone() == (1,)
    gone = connection.execute("DELETE FROM result WHERE (image + metric) % 3 = 0").rowcount
    connection.commit()
    connection.close()
    again = ms.ray.evaluate(path, store=store, workers=2, progress=False)
    assert again.new == gone > 10
    assert small_experiment.rows(store) == expected
    # One machine finds nothing left to do, and the same experiment.
    small_experiment.alone(path, store)
    connection = sqlite3.connect(store)
    assert connection.execute("SELECT count(*) FROM experiment").fetchone() == (1,)
    connection.close()
    assert small_experiment.rows(store) == expected


@pytest.mark.parametrize("who", ["DyingWorker", "DyingWriter"])
def test_processes_that_are_killed_are_replaced(cluster, experiment, tmp_path, monkeypatch, who):
    import dying_actors

    path, alone = experiment
    mark = tmp_path / "mark"
    module = "workers" if who == "DyingWorker" else "driver"
    monkeypatch.setattr(f"monosplit.ray.{module}.{who.removeprefix('Dying')}", dying_actors.marked(who, str(mark)))
    report = ms.ray.evaluate(path, store=tmp_path / "torn.sqlite", workers=2, progress=False)
    assert mark.exists()
    assert (report.worker_deaths, report.writer_deaths) == ((1, 0) if who == "DyingWorker" else (0, 1))
    assert small_experiment.rows(tmp_path / "torn.sqlite") == small_experiment.rows(alone)


def test_images_that_change_are_failures_with_a_reason(cluster, tmp_path, monkeypatch):
    path = small_experiment.make(tmp_path / "experiment", images=3)
    whole = path.read_text()
    path.write_text(whole.partition("[selection]")[0].replace('absolute = "both"', "") + '[comparison]\nmetrics = ["sparseness"]\n')
    run = driver._Run
    inspected = run._inspected
    image = path.parent / "data" / "test" / "images" / "1.png"

    def then_replaced(self, workers, on_validation):
        found = inspected(self, workers, on_validation)
        if not on_validation:
            image.write_bytes((image.parent / "0.png").read_bytes())
        return found

    monkeypatch.setattr(run, "_inspected", then_replaced)
    with pytest.raises(ms.ray.EvaluationFailed, match="image '1.png' is another one.*run again to go on") as caught:
        ms.ray.evaluate(path, store=tmp_path / "store.sqlite", workers=1, progress=False)
    assert "\n" not in str(caught.value)
    assert small_experiment.count(tmp_path / "store.sqlite") > 0, "the other block is kept"


def test_mistakes_are_said_in_one_line_before_anything_is_computed(cluster, experiment, tmp_path):
    path, _ = experiment
    for given, error, words in [
        ({"data": tmp_path / "none"}, (ValueError, OSError), "none"),
        ({"model": tmp_path / "none.onnx"}, (ValueError, OSError), "none.onnx"),
        ({"simd": "sse"}, (ValueError, RuntimeError), "avx2"),
        ({"workers": 0}, ValueError, "workers"),
    ]:
        with pytest.raises(error) as caught:
            ms.ray.evaluate(path, store=tmp_path / "store.sqlite", progress=False, **{"workers": 1, **given})
        assert words in str(caught.value) and "\n" not in str(caught.value), (given, caught.value)


def test_batches_of_ray_data_are_explained(cluster, photograph, tmp_path):
    data = pytest.importorskip("ray.data")
    (tmp_path / "in").mkdir()
    for number in range(4):
        (tmp_path / "in" / f"{number}.png").write_bytes(photograph if number != 2 else b"no picture")
    found = data.read_binary_files(str(tmp_path / "in"), include_paths=True).map_batches(
        ms.ray.Explain,
        fn_constructor_args=(ms.assets.network(), ["splitcam"]),
        batch_size=2,
        compute=data.ActorPoolStrategy(size=1),
    )
    found.write_parquet(str(tmp_path / "maps"))
    # Batches with and without unreadable pictures write the same schema.
    table = pytest.importorskip("pyarrow.parquet").read_table(tmp_path / "maps")
    assert table.num_rows == 4 and str(table.schema.field("reason").type) == "string"
    rows = sorted(data.read_parquet(str(tmp_path / "maps")).take_all(), key=lambda row: row["path"])
    assert [row["class_name"] for row in rows] == ["Bengal", "Bengal", "", "Bengal"]
    assert [row["reason"] == "" for row in rows] == [True, True, False, True]
    expected = ms.load(ms.assets.network()).explain(photograph, "splitcam").maps[0]
    np.testing.assert_allclose(rows[0]["splitcam"], expected, rtol=1e-4, atol=1e-6 * np.abs(expected).max())
