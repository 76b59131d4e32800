"""The page for people who come from other packages runs from top to bottom, and both calls of each pair agree."""

import re
from pathlib import Path

import numpy as np
import pytest

PAGE = Path(__file__).parents[2] / "docs" / "src" / "coming-from.md"


def test_the_calls_of_the_page_agree():
    torch = pytest.importorskip("torch")
    for peer in ("captum", "pytorch_grad_cam", "zennit", "quantus"):
        pytest.importorskip(peer)
    nn = torch.nn

    class Classifier(nn.Module):
        def __init__(self):
            super().__init__()
            self.features = nn.Sequential(nn.Conv2d(3, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 8, 3))
            self.classifier = nn.Sequential(nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(8 * 6 * 6, 4))

        def forward(self, x):
            return self.classifier(self.features(x))

    torch.manual_seed(11)
    masks = np.zeros((2, 32, 32))
    masks[:, 8:24, 8:24] = 1
    net, x = Classifier().eval(), torch.randn(2, 3, 32, 32)
    known = {"net": net, "x": x, "y": net(x).argmax(1), "masks": masks}
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
    compared = 0
    for block in blocks:
        before = known.get("ours")
        exec(compile(block, str(PAGE), "exec"), known)
        if known.get("ours") is not before:
            ours, theirs = (np.asarray(known[name].detach() if hasattr(known[name], "detach") else known[name]) for name in ("ours", "theirs"))
            assert ours.shape == theirs.shape
            assert np.abs(ours - theirs).max() < 1e-4 * np.abs(theirs).max(), block
            compared += 1
    assert compared == 4 and known["explanation"].attributions.shape == x.shape
    assert set(known["theirs"]) == set(known["methods"]) and set(known["table"].means()) == {"splitcam", "gradcam"}
