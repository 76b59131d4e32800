"""Modules of PyTorch: export, layers by module, and the same numbers as Captum, grad-cam, Zennit and Quantus, run live."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest

import monosplit as ms

torch = pytest.importorskip("torch")
nn = torch.nn


class Residual(nn.Module):
    """A convolution block with a ReLU that is called twice, in place."""

    def __init__(self, channels):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        return self.relu(x + self.conv2(self.relu(self.bn1(self.conv1(x)))))


def residual():
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU(), nn.MaxPool2d(2), Residual(8), Residual(8),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5),
    )
    network[3].bn1.running_mean.uniform_(-0.5, 0.5)
    network[3].bn1.running_var.uniform_(0.5, 1.5)
    return network.eval()


def plain():
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(3, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 8, 3), nn.ReLU(), nn.AvgPool2d(2),
        nn.Flatten(), nn.Linear(8 * 6 * 6, 16), nn.ReLU(), nn.Linear(16, 4),
    ).eval()


def smooth():
    torch.manual_seed(2)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.SiLU(), nn.Conv2d(8, 8, 3, stride=2, padding=1), nn.GELU(),
        nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(128, 6), nn.Softmax(dim=1),
    ).eval()


def dense():
    torch.manual_seed(3)
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 24), nn.ReLU(), nn.Linear(24, 12), nn.ReLU(), nn.Linear(12, 3)).eval()


def separate():
    """A residual block whose ReLUs and sum are modules of their own, as Captum and Zennit want them."""

    class Block(nn.Module):
        def __init__(self, channels):
            super().__init__()
            self.conv1, self.conv2 = (nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))
            self.relu1, self.relu2, self.add = nn.ReLU(), nn.ReLU(), Sum()

        def forward(self, x):
            return self.relu2(self.add(torch.stack([x, self.conv2(self.relu1(self.conv1(x)))], dim=-1)))

    torch.manual_seed(8)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU(), Block(8), nn.AvgPool2d(2), Block(8),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 5),
    ).eval()


class Sum(nn.Module):
    """The sum over the last axis: Zennit's own where it is installed, which its rules know."""

    def __new__(cls):
        try:
            from zennit.layer import Sum as Known
        except ImportError:
            return super().__new__(cls)
        return Known()

    def forward(self, x):
        return x.sum(-1)


def bent():
    """Activations that saturate, and a convolution for each channel."""
    torch.manual_seed(9)
    return nn.Sequential(
        nn.Conv2d(3, 6, 3, stride=2), nn.Tanh(), nn.Conv2d(6, 6, 3, groups=6), nn.LeakyReLU(0.1), nn.MaxPool2d(2),
        nn.Conv2d(6, 8, 3), nn.ELU(), nn.Flatten(), nn.Linear(8 * 4 * 4, 12), nn.Sigmoid(), nn.Linear(12, 4),
    ).eval()


NETWORKS = [residual, plain, smooth, dense, separate, bent]


def batch(count=2):
    torch.manual_seed(7)
    return torch.randn(count, 3, 32, 32)


def close(found, expected, tolerance=1e-6):
    found, expected = (np.asarray(value.detach() if hasattr(value, "detach") else value, dtype=np.float64) for value in (found, expected))
    assert found.shape == expected.shape
    largest = np.abs(expected).max()
    assert np.abs(found - expected).max() <= tolerance * largest, np.abs(found - expected).max() / largest


@pytest.mark.parametrize("make", NETWORKS)
def test_exported_networks_return_what_their_modules_return(make):
    network, x = make(), batch()
    with warnings.catch_warnings():
        warnings.simplefilter("error", ms.ExportWarning)
        model = ms.from_torch(network, x, output="probability")
    close(model.run(x), network(x), 1e-5)
    assert isinstance(model.run(x), torch.Tensor)


@pytest.mark.parametrize("make", NETWORKS)
@pytest.mark.parametrize("name", ["Saliency", "InputXGradient", "IntegratedGradients", "DeepLift", "GuidedBackprop", "Deconvolution"])
def test_drop_in_classes_of_captum(make, name):
    captum = pytest.importorskip("captum.attr")
    if name in ("GuidedBackprop", "Deconvolution", "DeepLift") and make in (residual, smooth):
        pytest.skip("Captum raises or has no rule for reused ReLUs and smooth functions")
    if name in ("GuidedBackprop", "Deconvolution") and make is bent:
        pytest.skip("Captum overrides the gradients of ReLUs alone")
    network, x = make().double(), batch().double()
    target = [1, 2]
    expected = getattr(captum, name)(network).attribute(x.clone().requires_grad_(), target=target)
    found = getattr(ms.captum, name)(network).attribute(x, target=target)
    assert isinstance(found, torch.Tensor) and found.dtype == torch.float64
    close(found, expected)


def test_integrated_gradients_with_captums_arguments():
    captum = pytest.importorskip("captum.attr")
    network, x = plain().double(), batch().double()
    arguments = dict(baselines=0.1 * torch.ones_like(x[:1]), target=torch.tensor([1, 3]), n_steps=30, method="riemann_trapezoid", return_convergence_delta=True)
    expected, gap = captum.IntegratedGradients(network).attribute(x, **arguments)
    found, own_gap = ms.captum.IntegratedGradients(network).attribute(x, **arguments)
    close(found, expected)
    np.testing.assert_allclose(own_gap.numpy(), gap.numpy(), atol=1e-8)


@pytest.mark.parametrize("make", [plain, residual, smooth, bent])
def test_occlusion_of_captum(make):
    captum = pytest.importorskip("captum.attr")
    network, x = make().double(), batch().double()
    arguments = dict(sliding_window_shapes=(3, 8, 8), strides=(3, 4, 4), target=1, baselines=0)
    close(ms.captum.Occlusion(network).attribute(x, **arguments), captum.Occlusion(network).attribute(x, **arguments))


@pytest.mark.parametrize("make", [plain, residual, separate, bent])
def test_layer_gradcam_of_captum(make):
    captum = pytest.importorskip("captum.attr")
    network, x = make().double(), batch().double()
    layer = next(part for part in list(network)[2:] if isinstance(part, nn.Conv2d) or list(part.children()))
    expected = captum.LayerGradCam(network, layer).attribute(x, target=2)
    close(ms.captum.LayerGradCam(network, layer).attribute(x, target=2), expected)


def test_deeplift_of_reused_relus_adds_up_where_captum_raises():
    network, x = residual().double(), batch().double()
    found, gap = ms.captum.DeepLift(network).attribute(x, target=0, return_convergence_delta=True)
    assert found.shape == x.shape
    assert float(gap.abs().max()) < 1e-8


@pytest.mark.parametrize("make", [residual, plain, smooth])
@pytest.mark.parametrize("name", ["GradCAM", "GradCAMPlusPlus", "LayerCAM", "HiResCAM", "XGradCAM", "ScoreCAM", "AblationCAM"])
def test_cams_of_grad_cam(name, make):
    peers = pytest.importorskip("pytorch_grad_cam")
    targets = pytest.importorskip("pytorch_grad_cam.utils.model_targets")
    network, x = make().double(), batch().double()
    wanted = [targets.ClassifierOutputTarget(1), targets.ClassifierOutputTarget(2)]
    convolutions = [part for part in network if isinstance(part, (nn.Conv2d, Residual))]
    # grad-cam keeps the scores of ablated channels in float32, whatever the module computes in.
    tolerance = 1e-4 if name == "AblationCAM" else 1e-6
    for layers in (convolutions[-1:], convolutions[-2:]):
        expected = getattr(peers, name)(network, layers)(x, wanted)
        with getattr(ms.gradcam, name)(model=network, target_layers=layers) as cam:
            found = cam(input_tensor=x, targets=wanted)
        assert found.shape == expected.shape and expected.max() > 0.5
        assert np.abs(found - expected).max() < tolerance


def test_tables_and_linear_layers_are_explained():
    torch.manual_seed(4)
    network, x = nn.Sequential(nn.Linear(7, 4), nn.ReLU(), nn.Linear(4, 3)).eval().double(), torch.randn(5, 7).double()
    captum = pytest.importorskip("captum.attr")
    for name in ("Saliency", "IntegratedGradients", "DeepLift"):
        expected = getattr(captum, name)(network).attribute(x.clone().requires_grad_(), target=1)
        close(getattr(ms.captum, name)(network).attribute(x, target=1), expected)
    expected = captum.LayerGradientXActivation(network, network[0]).attribute(x, target=1)
    close(ms.captum.LayerGradientXActivation(network, network[0]).attribute(x, target=1), expected)


def test_deeplift_with_a_baseline_for_each_sample():
    captum = pytest.importorskip("captum.attr")
    network, x = dense().double(), batch().double()
    for baselines in (torch.zeros_like(x), 0.3 * torch.ones_like(x[:1]), 0.2 * x.flip(0)):
        expected = captum.DeepLift(network).attribute(x.clone().requires_grad_(), baselines, target=[0, 2])
        close(ms.captum.DeepLift(network).attribute(x, baselines, target=[0, 2]), expected)


def test_one_number_a_sample_is_no_difference():
    network = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 1), nn.Flatten(0)).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("error", ms.ExportWarning)
        ms.from_torch(network, batch())


@pytest.mark.parametrize("make", [plain, dense, separate, bent])
def test_lrp_of_zennit(make):
    zennit = pytest.importorskip("zennit")
    from zennit.attribution import Gradient
    from zennit.composites import EpsilonPlus

    network, x = make().double(), batch().double()
    with Gradient(network, EpsilonPlus()) as attributor:
        output = network(x)
        start = torch.zeros_like(output)
        start[:, 1] = output[:, 1].detach()
        _, expected = attributor(x.clone().requires_grad_(), start)
    found = ms.from_torch(network, x).explain(x, "lrp:composite=epsilon-plus", target=1, dtype="float64").attributions
    close(found, expected)


def test_layers_are_named_by_their_modules():
    network, x = residual(), batch()
    model = ms.from_torch(network, x)
    by_module = model.explain(x, "splitcam", layer=network[4].conv2)
    by_name = model.explain(x, "splitcam", layer="4.conv2")
    assert np.array_equal(by_module.maps, by_name.maps)
    with pytest.raises(ValueError, match="Linear"):
        model.explain(x, "splitcam", layer=nn.Linear(2, 2))


def test_tensors_come_back_as_tensors():
    network, x = plain(), batch()
    found = ms.from_torch(network, x).explain(x.bfloat16(), "gradient")
    assert isinstance(found.attributions, torch.Tensor) and found.attributions.dtype == torch.float32
    wide = ms.from_torch(network, x).explain(x.double(), "gradient", dtype="float64")
    assert wide.attributions.dtype == torch.float64


def test_modules_of_the_same_weights_keep_their_own_layers():
    first, second, x = residual(), residual(), batch()
    models = [ms.from_torch(each, x) for each in (first, second)]
    maps = [model.explain(x, "splitcam", layer=each[4].conv2).maps for model, each in zip(models, (first, second))]
    assert np.array_equal(*maps)
    with pytest.raises(ValueError, match="Conv2d"):
        models[0].explain(x, "splitcam", layer=second[4].conv2)


def test_every_change_of_the_weights_is_seen():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = plain()
            self.register_buffer("factor", torch.ones(4), persistent=False)
            self.shift = torch.zeros(4)

        def forward(self, x):
            return self.inner(x) * self.factor + self.shift

    network, x = Scaled().eval(), batch()
    weight = network.inner[0].weight
    order = torch.tensor([1, 0, 2, 3, 4, 5])

    def swapped():
        weight.data = weight.detach()[order].clone()

    changes = [
        lambda: weight.data.mul_(1.5),
        lambda: weight.detach().numpy().__imul__(0.5),
        lambda: weight.data[:2].neg_(),
        swapped,
        lambda: network.factor.mul_(2),
        lambda: network.shift.add_(0.5),
    ]
    known = ms.from_torch(network, x)
    for change in changes:
        change()
        model = ms.from_torch(network, x)
        assert model is not known
        close(model.run(x), network(x), 1e-5)
        known = model
    assert ms.from_torch(network, x) is known


def test_a_module_is_exported_once_for_the_same_weights():
    network, x = plain(), batch()
    first = ms.from_torch(network, x)
    assert ms.from_torch(network, batch(5)) is first
    with torch.no_grad():
        network[0].weight.mul_(2.0)
    second = ms.from_torch(network, x)
    assert second is not first
    close(second.run(x), network(x), 1e-5)


def test_a_module_that_computes_something_else_with_the_same_weights_is_exported_again():
    def defined(sign):
        # As when a cell of a notebook is changed and run again.
        class Head(nn.Module):
            def forward(self, x):
                return x.flatten(1)[:, :4] * (2 if sign > 0 else 3)

        class Negative(nn.Module):
            def forward(self, x):
                return x.flatten(1)[:, :4] * -1

        return (Head if sign > 0 else Negative)().eval()

    class Scaled(nn.Module):
        def __init__(self, factor):
            super().__init__()
            self.factor = factor

        def forward(self, x):
            return x.flatten(1)[:, :4] * self.factor

    x = batch()
    first, second = defined(1), defined(-1)
    type(second).__qualname__ = type(second).__name__ = type(first).__qualname__
    type(first).__name__ = type(second).__name__
    for module in (first, second, Scaled(2.0).eval(), Scaled(-5.0).eval()):
        close(ms.from_torch(module, x).run(x), module(x), 1e-6)


def test_weights_beyond_one_file_go_through_a_folder(monkeypatch):
    import os

    network, x = plain(), batch()
    with torch.no_grad():
        network[0].bias.add_(0.125)
    monkeypatch.setattr("monosplit.torch_export.LARGEST_IN_MEMORY", 1000)
    model = ms.from_torch(network, x)
    folder = model._folder.name
    assert sum(os.path.getsize(os.path.join(folder, name)) for name in os.listdir(folder)) > 10_000
    close(model.explain(x, "gradient", target=1, dtype="float64").scores, network(x), 1e-5)
    with pytest.raises(TypeError, match="2 GiB"):
        __import__("pickle").dumps(model)


def test_half_precision_and_compiled_modules_are_unwrapped():
    network, x = plain(), batch()
    expected = ms.from_torch(network, x).explain(x, "gradient", target=0).attributions
    half = ms.from_torch(plain().half(), x.half()).explain(x, "gradient", target=0).attributions
    rounded = ms.from_torch(plain().half().float(), x).explain(x, "gradient", target=0).attributions
    assert torch.equal(half, rounded)
    compiled = ms.from_torch(torch.compile(network), x)
    assert torch.equal(compiled.explain(x, "gradient", target=0).attributions, expected)


class Dictionary(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = plain()

    def forward(self, x):
        return {"logits": self.inner(x), "extra": x.mean()}


def test_traced_modules_are_exported():
    network, x = plain(), batch()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(network, x)
    close(ms.from_torch(traced, x).run(x), network(x), 1e-5)


def test_dictionaries_as_outputs():
    network, x = Dictionary().eval(), batch()
    close(ms.from_torch(network, x).run(x), network(x)["logits"], 1e-5)


class Branching(nn.Module):
    def forward(self, x):
        if float(x.sum()) > 0:
            return x.flatten(1)[:, :4]
        return -x.flatten(1)[:, :4]


class RareBranch(nn.Module):
    """A branch that neither the example nor its negative takes."""

    def forward(self, x):
        return x.flatten(1)[:, :4] if x.abs().max() < 100 else -x.flatten(1)[:, :4]


class HiddenBranch(nn.Module):
    """The same out of sight of the newer exporter."""

    def forward(self, x):
        return x.flatten(1)[:, :4] * (2 if x.detach().numpy().sum() > 50_000 else 1)


class Unexportable(nn.Module):
    def forward(self, x):
        return torch.linalg.svdvals(x[:, 0])[:, :4]


class Dropping(nn.Module):
    def forward(self, x):
        return nn.functional.dropout(x.flatten(1)[:, :4], training=True)


def test_what_is_exported_and_not_read_is_named():
    with pytest.raises(ms.UnsupportedOperator, match="[Dd]ropout"):
        ms.from_torch(Dropping().eval(), batch())


def test_what_cannot_be_exported_is_said_in_one_line(capfd):
    x = batch()
    cases = [
        (plain().train(), "eval"),
        (nn.Sequential(plain(), nn.Dropout().train()), "eval"),
        (Branching().eval(), "decides by its data|could not export"),
        (RareBranch().eval(), "decides by its data"),
        (HiddenBranch().eval(), "decides by its data"),
        (Unexportable().eval(), "could not export"),
        (nn.Linear(7, 7).eval(), "cannot be called with the example .2, 3, 32, 32.: .*mat1"),
    ]
    for network, words in cases:
        with pytest.raises(ValueError, match=words) as raised:
            ms.from_torch(network, x)
        assert "\n" not in str(raised.value)
    with pytest.raises(TypeError):
        ms.from_torch("resnet18", x)
    assert capfd.readouterr() == ("", "")


class PictureAndTable(nn.Module):
    """Two inputs and a dictionary of outputs."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(6)
        self.body = nn.Conv2d(3, 4, 3)
        self.head = nn.Linear(9, 6)

    def forward(self, image, table):
        seen = self.body(image).relu().mean((2, 3))
        return {"logits": self.head(torch.cat([seen, table], 1)), "level": image.mean((1, 2, 3))}


def test_further_inputs_are_held_as_given():
    network, x = PictureAndTable().eval().double(), batch().double()
    table = torch.randn(2, 5).double()
    model = ms.from_torch(network, {"table": table, "image": x})
    assert model.inputs == ["image", "table"] and model.outputs == ["logits", "level"]
    image, other = x.clone().requires_grad_(), table.clone().requires_grad_()
    network(image, other)["logits"][:, 2].sum().backward()
    settings = dict(layer="", target=2, dtype="float64")
    close(model.explain(x, "gradient", inputs={"table": table}, **settings).attributions, image.grad)
    close(model.explain(table, "gradient", inputs={"image": x}, **settings).attributions, other.grad)
    one = model.explain(x, "gradient", inputs={"table": table[0]}, batch=1, **settings)
    close(one.scores, network(x, table[:1].expand(2, -1))["logits"])
    outputs = model.run(x, inputs={"table": table}, dtype="float64", batch=1)
    close(outputs, network(x, table)["logits"])
    for wrong, words in (({}, "inputs=\\{"), ({"tabel": table}, "'table'"), ({"table": table[:, :3]}, "shape")):
        with pytest.raises(ValueError, match=words):
            model.explain(x, "gradient", inputs=wrong, **settings)


class Scores(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = PictureAndTable()

    def forward(self, image, table):
        return self.inner(image, table)["logits"]


def test_further_inputs_of_captum_are_held():
    captum = pytest.importorskip("captum.attr")

    network, x, table = Scores().eval().double(), batch().double(), torch.randn(2, 5).double()
    for name, options in (("Saliency", {}), ("IntegratedGradients", {"return_convergence_delta": True}), ("Occlusion", {"sliding_window_shapes": (3, 8, 8)})):
        arguments = dict(target=2, additional_forward_args=(table,), **options)
        expected = getattr(captum, name)(network).attribute(x.clone().requires_grad_(), **arguments)
        found = getattr(ms.captum, name)(network).attribute(x, **arguments)
        if isinstance(found, tuple):
            assert float((found[1] - expected[1]).abs().max()) < 1e-8
            found, expected = found[0], expected[0]
        close(found, expected)
    with pytest.raises(NotImplementedError, match="str"):
        ms.captum.Saliency(network).attribute(x, target=2, additional_forward_args="table")


class UnreadInput(nn.Module):
    """The middle one of three inputs is not read, and has the shape of the last."""

    def forward(self, image, unread, factors):
        return image.flatten(1)[:, :4] * factors


class UnreadFirst(nn.Module):
    """The first of two inputs is not read."""

    def forward(self, unread, image):
        return image.flatten(1)[:, :4]


def test_inputs_of_captum_are_held_by_name_where_one_is_not_read():
    captum = pytest.importorskip("captum.attr")
    network, x = UnreadInput().eval(), batch().double()
    tables = (torch.randn(2, 4).double(), torch.randn(2, 4).double())
    for module in (network, nn.DataParallel(network)):
        for name, options in (("Saliency", {"abs": False}), ("IntegratedGradients", {"return_convergence_delta": True})):
            arguments = dict(target=2, additional_forward_args=tables, **options)
            expected = getattr(captum, name)(network).attribute(x.clone().requires_grad_(), **arguments)
            found = getattr(ms.captum, name)(module).attribute(x, **arguments)
            if isinstance(found, tuple):
                assert float((found[1] - expected[1]).abs().max()) < 1e-8
                found, expected = found[0], expected[0]
            close(found, expected)
    # Not every exporter keeps an input that nothing reads.
    held = ms.captum._held(nn.DataParallel(network), SimpleNamespace(inputs=["image", "factors"]), x, tables)
    assert list(held) == ["factors"] and held["factors"] is tables[1]
    with pytest.raises(ValueError, match="does not read 'unread'"):
        ms.captum._held(UnreadFirst(), SimpleNamespace(inputs=["image"]), tables[0], x)


class DecidesByTable(nn.Module):
    """A branch that hangs on the second input."""

    def forward(self, image, table):
        scores = image.flatten(1)[:, :4]
        return scores if float(table.detach().numpy().sum()) > 0 else -scores


def test_modules_of_several_inputs_are_compared_with_what_was_exported():
    with pytest.raises(ValueError, match="decides by its data"):
        ms.from_torch(DecidesByTable().eval(), (batch(), torch.ones(2, 5)))


def test_several_inputs_are_explained_together():
    captum = pytest.importorskip("captum.attr")
    network, x, table = Scores().eval().double(), batch(3).double(), torch.randn(3, 5).double()
    model = ms.from_torch(network, (x, table))
    given, settings = {"image": x, "table": table}, dict(target=[2, 0, 1], dtype="float64")
    for name, method, options in (
        ("InputXGradient", "input-x-gradient", {}),
        ("IntegratedGradients", "integrated-gradients:steps=20", {"n_steps": 20}),
    ):
        leaves = tuple(value.clone().requires_grad_() for value in (x, table))
        expected = getattr(captum, name)(network).attribute(leaves, target=[2, 0, 1], **options)
        e = model.explain(given, method, batch=2, **settings)
        for (key, found), wanted in zip(e.attributions.items(), expected):
            close(found, wanted)
        assert list(e.attributions) == ["image", "table"] and e.maps["image"].shape == (3, 32, 32)
        alone = model.explainer(method, of="table", dtype="float64", inputs={"image": x})({"table": table}, [2, 0, 1])
        assert list(alone) == ["table"]
        close(alone["table"], model.explain(given, method, of=["table"], **settings).attributions["table"])
    assert e.of("image").overlay().shape[2] == 3 and e._repr_png_()
    for call, words in (
        (lambda: e.overlay(), r"of\('image'\)"),
        (lambda: model.explain({"image": x}, "gradient"), "reads input 'table'"),
        (lambda: model.explain({"image": x, "tabel": table}, "gradient"), "no input 'tabel'"),
        (lambda: model.explain({}, "gradient"), "nothing to explain"),
        (lambda: model.explain({"image": x, "table": table[:2]}, "gradient"), "one for all"),
        (lambda: model.explain(given, "gradient", layer="inner.body"), "inputs="),
    ):
        with pytest.raises(ValueError, match=words):
            call()


class Text(nn.Module):
    """Scores of token ids, with a mask as the second input."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(12)
        self.embedding = nn.Embedding(20, 6)
        self.inner = nn.Linear(6, 8)
        self.head = nn.Linear(8, 3)

    def forward(self, ids, mask):
        hidden = torch.tanh(self.inner(self.embedding(ids))) * mask[:, :, None]
        return self.head(hidden.sum(1))


def test_token_ids_are_explained_at_their_embedding():
    captum = pytest.importorskip("captum.attr")
    network, ids = Text().eval().double(), torch.randint(0, 20, (2, 7))
    mask = torch.ones(2, 7).double()
    mask[0, 5:] = 0
    model = ms.from_torch(network, (ids, mask))
    arguments = dict(target=[1, 2], additional_forward_args=(mask,))
    settings = dict(target=[1, 2], dtype="float64")
    expected = captum.LayerGradientXActivation(network, network.embedding).attribute(ids, **arguments)
    found = model.explain(ids, "input-x-gradient", inputs={"mask": mask}, **settings)
    close(found.attributions, expected)
    close(found.maps, expected.sum(2))
    both = model.explain({"ids": ids, "mask": mask}, "input-x-gradient", of="ids", **settings)
    close(both.attributions["ids"], expected)
    zeros = torch.zeros_like(ids)
    expected = captum.LayerIntegratedGradients(network, network.embedding).attribute(ids, zeros, n_steps=30, **arguments)
    found = model.explainer("integrated-gradients", steps=30, baseline=zeros[:1], dtype="float64", inputs={"mask": mask})
    close(found(ids, [1, 2]), expected)
    with pytest.raises(ValueError, match="token id 20"):
        model.explain(torch.full_like(ids, 20), "gradient", inputs={"mask": mask})


class Segmenter(nn.Module):
    """Two outputs: a map of three classes, and an embedding."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU())
        self.classes = nn.Conv2d(8, 3, 1)
        self.embedding = nn.Linear(8, 6)

    def forward(self, x):
        features = self.body(x)
        return self.classes(features), self.embedding(features.mean((2, 3)))


def target_cases(network, x):
    """Targets of ours, and the same number as autograd computes it."""
    mask = torch.zeros(32, 32); mask[4:20, 8:30] = 1
    reference = torch.linspace(-1, 1, 6)
    outputs = ms.from_torch(network, x)._network("float32").ends()[1]
    maps, embedding = outputs
    return [
        (ms.target.Region(mask, class_=1), lambda y: (y[0][:, 1] * mask).sum((1, 2))),
        (ms.target.Region(mask.numpy(), class_=2, output=maps), lambda y: (y[0][:, 2] * mask).sum((1, 2))),
        (ms.target.Cell(maps, (1, 3, -2)), lambda y: y[0][:, 1, 3, -2]),
        (f"sum:{maps}", lambda y: y[0].sum((1, 2, 3))),
        (ms.target.Mean(embedding), lambda y: y[1].mean(1)),
        (ms.target.Norm(embedding), lambda y: y[1].norm(dim=1)),
        (ms.target.Similarity(reference, output=embedding), lambda y: nn.functional.cosine_similarity(y[1], reference.to(y[1])[None])),
        (ms.target.Cell(embedding, slice(1, 4)), lambda y: y[1][:, 1:4].sum(1)),
    ]


def test_targets_of_networks_that_are_no_classifiers_agree_with_autograd():
    network, x = Segmenter().eval().double(), batch().double()
    model = ms.from_torch(network, x)
    with pytest.raises(ValueError, match="target"):
        model.explain(x, "gradient")
    for target, number in target_cases(network, x):
        leaf = x.clone().requires_grad_()
        number(network(leaf)).sum().backward()
        found = model.explain(x, "gradient", target=target, layer="", dtype="float64")
        close(found.attributions, leaf.grad, 1e-5)
        assert found.target and found._repr_png_()
    with pytest.raises(ValueError, match="target|class"):
        model.explainer("gradient", target=target_cases(network, x)[0][0])(x, target=ms.target.Sum("output_0"))


def test_metrics_look_at_the_score_of_a_target():
    network, x = plain(), batch()
    model = ms.from_torch(network, x)
    own = lambda images, number: np.abs(images).sum(axis=1)
    metric = "pixel-flipping"
    found = model.evaluate({"own": own, "gradient": "gradient"}, x, [metric], target=ms.target.Contrast(2, 0))
    assert {row.target for row in found} == {"contrast:2,0"}
    parts = [model.evaluate({"own": own}, x, [metric], target=number).rows for number in (2, 0)]
    # The area under a curve of differences is the difference of the areas.
    for row, first, second in zip(found.rows, *parts):
        assert row.value == pytest.approx(first.value - second.value, rel=1e-4, abs=1e-5)
    by_name = model.evaluate({"own": own}, x, [metric], target="class:2")
    assert [row.value for row in by_name] == pytest.approx([row.value for row in parts[0]], rel=1e-5)


def test_a_contrast_is_the_difference_of_two_classes():
    network, x = plain().double(), batch().double()
    model = ms.from_torch(network, x)
    found = model.explain(x, "gradient", target=ms.target.Contrast(2, 0), dtype="float64").attributions
    parts = [model.explain(x, "gradient", target=number, dtype="float64").attributions for number in (2, 0)]
    close(found, parts[0] - parts[1])


def test_quantus_runs_on_our_function():
    quantus = pytest.importorskip("quantus")
    network, x = plain(), batch(3)
    y = network(x).argmax(1).numpy()
    model = ms.from_torch(network, x)
    masks = np.zeros((3, 1, 32, 32)); masks[:, :, 8:24, 8:24] = 1
    metrics = {
        "flipping": quantus.PixelFlipping(features_in_step=128, perturb_baseline="black", disable_warnings=True),
        "sensitivity": quantus.MaxSensitivity(nr_samples=2, disable_warnings=True),
        "localisation": quantus.AttributionLocalisation(disable_warnings=True),
        "randomisation": quantus.MPRT(disable_warnings=True),
    }
    found = quantus.evaluate(
        metrics, {"SplitCAM": ms.quantus(model, "splitcam")}, network, x.numpy(), y, s_batch=masks, explain_func_kwargs={}
    )
    assert set(found["SplitCAM"]) == set(metrics)
