"""Networks and explanations without PyTorch."""

import gc
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request

import numpy as np
import pytest

import monosplit as ms
from monosplit import _monosplit


def test_the_three_lines_of_the_readme(model, photograph):
    e = model.explain(photograph, "splitcam")
    assert e.maps.shape == (1, 128, 128) and e.maps.dtype == np.float32
    assert e.scores.shape == (1, 37)
    assert e.classes == [int(np.argmax(e.scores[0]))]
    assert 0 < e.probabilities[0] <= 1
    assert np.abs(e.maps).max() > 0


def test_scores_are_those_of_the_network_alone(model, photograph):
    alone = model.run(photograph)
    for method in ("splitcam", "gradient", "lrp", "gradcam"):
        assert np.array_equal(model.explain(photograph, method).scores, alone)


def test_attributions_have_the_shape_of_what_is_explained(model, photograph):
    assert model.explain(photograph, "gradient").attributions.shape == (1, 3, 128, 128)
    layer = next(layer for layer in model.layers if layer.operator == "Conv" and layer.shape[2] != 128)
    found = model.explain(photograph, "gradient", layer=f"{layer.name}:out").attributions
    assert found.shape[1:] == layer.shape[1:]
    # Methods that do not tell channels apart have one.
    assert model.explain(photograph, "gradcam", layer=f"{layer.name}:out").attributions.shape[1:] == (1, *layer.shape[2:])
    e = model.explain([photograph] * 3, "occlusion", window=64, stride=64, batch=2)
    assert e.attributions.shape == (3, 1, 128, 128) and np.array_equal(e.attributions[:, 0], e.maps)


def test_maps_are_the_channel_sum_of_attributions(model, photograph):
    e = model.explain(photograph, "input-x-gradient", dtype="float64")
    np.testing.assert_allclose(e.attributions.sum(axis=1), e.maps, rtol=1e-9, atol=1e-12)


def test_integrated_gradients_add_up_to_the_gain(model, photograph):
    sample = ms.samples.samples(photograph, model._network("float64"), "float64").array
    found = model.explainer("integrated-gradients", steps=200, dtype="float64")(sample, target=7)
    gain = model.run(sample, dtype="float64")[0, 7] - model.run(np.zeros_like(sample), dtype="float64")[0, 7]
    assert abs(found.sum() - gain) < 1e-2 * abs(gain)


def test_pictures_are_made_ready_as_the_preset_says(model, photograph, tmp_path):
    normalised = ms.samples.samples(photograph, model._network("float32"), "float32").array
    mean, std = (np.array(row, "float32").reshape(1, 3, 1, 1) for row in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    from_zero_to_one = normalised * std + mean
    assert 0 <= from_zero_to_one.min() + 1e-6 and 0.5 < from_zero_to_one.max() < 1 + 1e-6
    opened = ms.load(ms.assets.network(), preset="unit")
    np.testing.assert_allclose(opened.run(photograph), model.run(from_zero_to_one), rtol=1e-4, atol=1e-4)
    assert np.abs(opened.run(photograph) - model.run(photograph)).max() > 0.1
    # What is given as an array is ready; what is pickled or compiled stays so.
    np.testing.assert_array_equal(opened.run(normalised), model.run(normalised))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(opened)).run(photograph), opened.run(photograph))
    opened.compile("gradient").save(tmp_path / "explained.onnx")
    assert ms.load(tmp_path / "explained.onnx")._network("float32").prepare(_monosplit.decode_picture(photograph))[0].max() <= 1
    with opened.serve(photograph) as page:
        assert page.address.endswith("#preset=unit")
    with pytest.raises(ValueError, match="no preprocessing named 'cifar'.*imagenet-bgr"):
        ms.load(ms.assets.network(), preset="cifar")


def test_every_kind_of_input_gives_the_same(model, photograph, tmp_path):
    import io

    Image = pytest.importorskip("PIL.Image")
    path = tmp_path / "cat.png"
    path.write_bytes(photograph)
    image = Image.open(io.BytesIO(photograph))
    pixels = np.asarray(image.convert("RGB"))
    expected = model.explain(photograph).maps
    array = ms.samples.samples(photograph, model._network("float32"), "float32").array
    np.save(tmp_path / "cat.npy", array)
    for given in (str(path), path, image, pixels, array, array[0], tmp_path / "cat.npy", array.tolist()):
        assert np.array_equal(model.explain(given).maps, expected), type(given)
    assert np.array_equal(model.explain([photograph, path]).maps, np.concatenate([expected, expected]))


def test_half_and_double_precision_are_read(model, photograph):
    array = ms.samples.samples(photograph, model._network("float32"), "float32").array
    assert model.explain(array.astype(np.float16)).maps.dtype == np.float32
    assert model.explain(array.astype(np.float64), dtype="float64").maps.dtype == np.float64


def test_batches_are_as_their_samples_one_by_one(model, photograph):
    array = ms.samples.samples(photograph, model._network("float32"), "float32").array
    several = np.concatenate([array * factor for factor in (1.0, 0.9, 0.8, 0.7, 0.6)]).astype(np.float32)
    whole = model.explain(several, "splitgrad", batch=2, target=[0, 1, 2, None, 4])
    assert whole.classes[:3] == [0, 1, 2] and whole.classes[4] == 4
    for index, sample in enumerate(several):
        alone = model.explain(sample, "splitgrad", target=whole.classes[index])
        np.testing.assert_allclose(alone.maps[0], whole.maps[index], rtol=1e-4, atol=1e-6 * np.abs(alone.maps).max())


@pytest.mark.parametrize("info", ms.methods(), ids=lambda info: info.name)
def test_every_method_explains(model, photograph, info):
    small = {"samples": 8, "steps": 4, "batch": 8, "window": 64, "stride": 64, "count": 2, "segments": 6}
    options = {key: value for key, value in small.items() if key in info.options and key != "batch"}
    if info.name in ("attention", "attention-rollout", "attention-x-gradient"):
        with pytest.raises(ValueError, match="attention"):
            model.explain(photograph, info.name)
        return
    if info.name == "mask":
        return
    e = model.explain(photograph, info.name, **options)
    assert e.maps.shape == (1, 128, 128) and np.isfinite(e.maps).all()


def test_targets_by_number_name_and_list(model, photograph):
    by_name = model.explain(photograph, target="bengal")
    number = by_name.classes[0]
    assert model.class_names[number].lower() == "bengal"
    assert np.array_equal(model.explain(photograph, target=number).maps, by_name.maps)
    assert model.explain(photograph, target=[number]).classes == [number]
    assert model.explain(photograph, target=np.int64(number)).classes == [number]
    assert model.explain(photograph, target=-1).classes == [36]


def test_errors_are_one_line_of_the_right_kind(model, photograph, tmp_path):
    cases = [
        (FileNotFoundError, lambda: ms.load("no-such-file.onnx")),
        (FileNotFoundError, lambda: model.explain("no-such-picture.png")),
        (ValueError, lambda: ms.load(b"not a network")),
        (ValueError, lambda: model.explain(photograph, "no-such-method")),
        (ValueError, lambda: model.explain(photograph, layer="no-such-layer")),
        (ValueError, lambda: model.explain(photograph, target=37)),
        (ValueError, lambda: model.explain(photograph, target=[1, 2])),
        (ValueError, lambda: model.explain(photograph, "no-such-class", target="no such breed")),
        (ValueError, lambda: model.explain(np.zeros((1, 3, 5, 5)))),
        (ValueError, lambda: model.explain(b"not a picture")),
        (ValueError, lambda: model.explain(photograph, "lrp", no_such_option=3)),
        (ValueError, lambda: model.explain(photograph, dtype="float8")),
        (ValueError, lambda: ms.load(ms.assets.network(), device="abacus")),
        (TypeError, lambda: ms.load(17)),
        (TypeError, lambda: model.explain(photograph, target=1.5)),
    ]
    for kind, call in cases:
        with pytest.raises(kind) as raised:
            call()
        assert "\n" not in str(raised.value) and str(raised.value)


def test_an_operator_that_is_not_read_is_named():
    onnx = pytest.importorskip("onnx")
    helper = onnx.helper
    graph = helper.make_graph(
        [helper.make_node("NonMaxSuppression", ["x", "y"], ["z"], name="suppress")],
        "g",
        [helper.make_tensor_value_info("x", 1, [1, 4, 4]), helper.make_tensor_value_info("y", 1, [1, 1, 4])],
        [helper.make_tensor_value_info("z", 7, None)],
    )
    with pytest.raises(ms.UnsupportedOperator, match="suppress"):
        ms.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))


def test_pictures_are_drawn_and_saved(model, photograph, tmp_path):
    e = model.explain(photograph)
    assert e._repr_png_().startswith(b"\x89PNG")
    e.save(tmp_path / "cat.png")
    assert (tmp_path / "cat.png").read_bytes() == e._repr_png_()
    e.save(tmp_path / "cat.npy")
    assert np.array_equal(np.load(tmp_path / "cat.npy"), e.attributions)
    with pytest.raises(ValueError, match=".png"):
        e.save(tmp_path / "cat.bmp")
    assert sorted(os.listdir(tmp_path)) == ["cat.npy", "cat.png"]
    with pytest.raises(FileNotFoundError, match=r"nowhere/cat\.png'"):
        e.save(tmp_path / "nowhere" / "cat.png")


def test_compiled_files_give_the_same_maps(model, photograph, tmp_path):
    ort = pytest.importorskip("onnxruntime")
    e = model.explain(photograph, "splitcam", target=3)
    model.compile(["splitcam", "gradcam"], target=3).save(tmp_path / "explained.onnx")
    session = ort.InferenceSession(str(tmp_path / "explained.onnx"), providers=["CPUExecutionProvider"])
    outputs = session.run(None, {session.get_inputs()[0].name: e.samples.array})
    names = [output.name for output in session.get_outputs()]
    assert np.allclose(outputs[0], e.scores, atol=1e-4)
    found = outputs[next(i for i, name in enumerate(names) if "/splitcam/" in name)]
    layer_map = model.explainer("splitcam")(e.samples.array, target=3).sum(axis=1)
    assert np.abs(found - layer_map).max() <= 1e-4 * np.abs(layer_map).max()


def test_the_split_is_verified(model):
    findings = model.verify(pairs=2)
    assert findings and not any(finding.fails for finding in findings)
    assert any("monoton" in finding.claim or "g" in finding.claim for finding in findings)


def test_methods_and_functions_are_measured_alike(model, photograph):
    array = ms.samples.samples(photograph, model._network("float32"), "float32").array
    ours = lambda images, number: model.explain(images, "gradcam", target=number).maps
    metrics = ["pixel-flipping", "sparseness", "max-sensitivity:samples=2", "attribution-localisation"]
    masks = np.zeros((1, 128, 128)); masks[:, 32:96, 32:96] = 1
    found = model.evaluate({"by name": "gradcam", "by function": ours}, array, metrics, masks=masks)
    means = found.means()
    assert means["by name"] == pytest.approx(means["by function"], rel=1e-5)
    assert len(found.rows) == 2 * len(metrics)
    unmasked = model.evaluate(["gradcam"], array, ["attribution-localisation"])
    assert unmasked.rows[0].value is None and "mask" in unmasked.rows[0].reason
    for wrong in (dict(metrics=["no-such-metric"]), dict(methods={"x": lambda images, number: images})):
        with pytest.raises(ValueError):
            model.evaluate(**{"methods": ["gradcam"], "data": array, "metrics": ["sparseness"], **wrong})


def test_tables_of_metrics_are_those_of_pandas(model, photograph):
    pytest.importorskip("pandas")
    found = model.evaluate(["gradcam"], photograph, ["sparseness"], target=3)
    assert found.to_pandas()["value"].tolist() == [row.value for row in found.rows]


def test_progress_goes_from_nothing_to_everything(model, photograph):
    heard = []
    model.explainer("rise", samples=100)(photograph, progress=heard.append)
    assert heard == sorted(heard) and heard[-1] == 1.0


def test_an_exception_in_the_listener_ends_the_work(model, photograph):
    def stop(share):
        raise KeyError("enough")

    with pytest.raises(KeyError, match="enough"):
        model.explainer("rise", samples=4000)(photograph, progress=stop)


def test_numbers_that_are_not_finite_are_refused(model, photograph):
    array = ms.samples.samples(photograph, model._network("float32"), "float32").array
    for value in (np.nan, np.inf, -np.inf):
        wrong = np.concatenate([array, array])
        wrong[1, 2, 5, 7] = value
        for call in (lambda: model.explain(wrong), lambda: model.run(wrong), lambda: model.explainer("gradient")(wrong)):
            with pytest.raises(ValueError, match=r"sample 1 holds -?(nan|inf) at \[2, 5, 7\], expected finite"):
                call()


def test_fingerprints_tell_bytes_apart():
    generator = np.random.default_rng(0)
    for length in (0, 1, 7, 8, 63, 64, 65, 1000):
        data = generator.integers(0, 256, length, dtype=np.uint8)
        found = {_monosplit.fingerprint(data), _monosplit.fingerprint(np.append(data, np.uint8(0)))}
        for bit in range(8 * length):
            changed = data.copy()
            changed[bit // 8] ^= 1 << bit % 8
            found.add(_monosplit.fingerprint(changed))
        assert len(found) == 2 + 8 * length
        assert _monosplit.fingerprint(data.copy()) == _monosplit.fingerprint(data)
    # Signs of numbers are the highest bits of their words: two changes must not undo each other.
    numbers = generator.standard_normal(64).astype(np.float32)
    found = set()
    for first in range(64):
        for second in range(first):
            changed = numbers.copy()
            changed[[first, second]] *= -1
            found.add(_monosplit.fingerprint(changed.view(np.uint8)))
    assert len(found) == 64 * 63 // 2


def test_many_threads_open_compile_and_explain(photograph):
    """What an interpreter without the global lock would break: caches of explainers and networks that threads fill together."""
    model = ms.load(ms.assets.network())
    names = ["gradient", "splitcam", "gradcam", "splitgrad"]
    expected = {name: ms.load(ms.assets.network()).explain(photograph, name, target=3).maps for name in names}
    start, wrong = threading.Barrier(16), []

    def work(index):
        start.wait()
        for turn in range(4):
            name = names[(index + turn) % len(names)]
            try:
                if not np.array_equal(model.explain(photograph, name, target=3).maps, expected[name]):
                    wrong.append(name)
            except Exception as error:
                wrong.append(error)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(16)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert not wrong


def test_threads_share_an_explainer(model, photograph):
    explainer = model.explainer("splitgrad")
    expected = explainer(photograph)
    found = [None] * 8

    def work(index):
        found[index] = explainer(photograph)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert all(np.array_equal(one, expected) for one in found)


def test_other_threads_run_meanwhile(model, photograph):
    explainer = model.explainer("rise", samples=400)
    ticks, done = [], threading.Event()

    def tick():
        while not done.is_set():
            ticks.append(time.monotonic())
            time.sleep(0.005)

    thread = threading.Thread(target=tick)
    thread.start()
    explainer(photograph)
    done.set()
    thread.join()
    assert len(ticks) > 5


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_control_c_ends_long_work_within_a_second(tmp_path):
    program = (
        "import monosplit as ms, signal\n"
        "# What a shell starts in the background ignores interrupts.\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "model = ms.load(ms.assets.network())\n"
        "rise = model.explainer('rise', samples=10**5)\n"
        "print('begun', flush=True)\n"
        "try:\n"
        "    rise(ms.assets.photograph())\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted', flush=True)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "begun\n"
    time.sleep(1.0)
    begun = time.monotonic()
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "interrupted\n"
    assert time.monotonic() - begun < 3.0  # a second, on a machine that does nothing else
    process.wait()


def test_a_thousand_calls_do_not_grow(model, photograph):
    psutil = pytest.importorskip("psutil")
    array = ms.samples.samples(photograph, model._network("float32"), "float32").array
    explainer = model.explainer("gradient")
    for _ in range(100):
        explainer(array)
    gc.collect()
    before = psutil.Process().memory_info().rss
    for _ in range(1000):
        explainer(array)
    gc.collect()
    assert psutil.Process().memory_info().rss - before < 2_000_000


def test_models_and_explainers_are_pickled_and_copied(model, photograph):
    import copy
    import pickle

    explainer = model.explainer("integrated-gradients", steps=5)
    expected = explainer(photograph, target=3)
    assert np.array_equal(pickle.loads(pickle.dumps(explainer))(photograph, target=3), expected)
    assert np.array_equal(pickle.loads(pickle.dumps(model)).run(photograph), model.run(photograph))
    assert copy.deepcopy(model) is model and copy.copy(explainer) is explainer


def test_hints_are_in_words_of_python(model, photograph):
    for call, words in (
        (lambda: model.explain(photograph, "no-such-method"), r"monosplit\.methods\(\)"),
        (lambda: model.explain(photograph, layer="no-such-layer"), r"model\.layers"),
        (lambda: model.explain(photograph, target="no such breed"), r"model\.class_names"),
    ):
        with pytest.raises(ValueError, match=words):
            call()


def test_the_command_line_is_there(tmp_path):
    (tmp_path / "cat.png").write_bytes(ms.assets.photograph())
    (tmp_path / "network.onnx").write_bytes(ms.assets.network())
    done = subprocess.run(
        [sys.executable, "-m", "monosplit", "run", "network.onnx", "cat.png"],
        cwd=tmp_path, capture_output=True, text=True,
    )
    assert done.returncode == 0 and "%" in done.stdout
    failed = subprocess.run(
        [sys.executable, "-m", "monosplit", "run", "nowhere.onnx", "cat.png"], cwd=tmp_path, capture_output=True, text=True
    )
    assert failed.returncode != 0 and "nowhere.onnx" in failed.stderr


def test_the_package_imports_without_torch():
    program = "import sys; sys.modules['torch'] = None; import monosplit; print(monosplit.__version__)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_examples_in_the_documentation_strings_run():
    import doctest
    import importlib
    import pkgutil

    ran = 0
    for module in pkgutil.walk_packages(ms.__path__, "monosplit."):
        if module.name.rpartition(".")[2].startswith("_"):
            continue
        found = doctest.testmod(importlib.import_module(module.name))
        assert found.failed == 0
        ran += found.attempted
    assert doctest.testmod(ms).failed == 0
    assert ran > 5


def test_an_explanation_is_explored_as_it_was_made(model, photograph):
    e = model.explain([photograph, photograph], "splitcam", alpha=0.25, layer="layer3.0.conv1", target=["Bengal", "Sphynx"])
    with e.explore(1) as page:
        address, _, chosen = page.address.partition("#")
        assert urllib.parse.parse_qs(chosen) == {
            "method": ["splitcam"],
            "class": [str(e.classes[1])],
            "layer": ["layer3.0.conv1"],
            "alpha": ["0.25"],
            "picture": ["gallery:1"],
        }
        with urllib.request.urlopen(f"{address}pictures/1") as answer:
            assert _monosplit.decode_picture(answer.read()).shape == (128, 128, 3)
    contrast = model.explain(photograph, "gradcam", target=ms.target.Contrast("Bengal", 3))
    with contrast.explore() as page:
        chosen = urllib.parse.parse_qs(page.address.partition("#")[2])
        assert (chosen["class"], chosen["against"]) == ([str(model.class_names.index("Bengal"))], ["3"])
    with pytest.raises(ValueError, match="explain the path"):
        model.explain(np.zeros((1, 3, 128, 128), np.float32)).explore()
    with pytest.raises(ValueError, match="model.serve"):
        pickle.loads(pickle.dumps(e)).explore()


def test_the_explorer_is_served_until_its_block_ends(model, photograph):
    with model.serve(photograph, photograph) as page:
        with urllib.request.urlopen(page.address) as answer:
            assert "<title>monosplit explorer" in answer.read().decode()
        with urllib.request.urlopen(page.address + "pictures/1") as answer:
            assert answer.read() == bytes(photograph)
        assert f'src="{page.address}"' in page._repr_html_()
    with pytest.raises(OSError):
        urllib.request.urlopen(page.address)
    with pytest.raises(ValueError, match="nowhere.png"):
        model.serve("nowhere.png")
