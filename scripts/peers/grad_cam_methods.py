"""The maps of the grad-cam package, as it returns them and before it scales them."""

import pytorch_grad_cam
import torch
from captum import attr
from pytorch_grad_cam.utils.model_targets import ClassifierOutputTarget


def unscaled(name, rectified=True):
    """The map before it is scaled to between 0 and 1 and to the size of the image."""
    kind = getattr(pytorch_grad_cam, name)

    class Kept(kind):
        def get_cam_image(self, *arguments, **options):
            self.kept = super().get_cam_image(*arguments, **options)
            return self.kept

    def run(job):
        with Kept(job.network, [job.last()]) as method:
            method(job.x.clone().requires_grad_(True), [ClassifierOutputTarget(c) for c in job.target()])
            found = torch.as_tensor(method.kept)
        return found.clamp(min=0) if rectified else found

    return run


def scaled(name):
    """The map as the package returns it."""

    def run(job):
        with getattr(pytorch_grad_cam, name)(job.network, [job.last()]) as method:
            found = method(job.x.clone().requires_grad_(True), [ClassifierOutputTarget(c) for c in job.target()])
        return torch.as_tensor(found)

    return run


def guided_layer_cam(job):
    """No package has it: the product of grad-cam's LayerCAM and Captum's guided backpropagation."""
    coarse = unscaled("LayerCAM")(job)[:, None].to(job.x.dtype)
    fine = attr.GuidedBackprop(job.network).attribute(job.x, target=job.target())
    return fine * torch.nn.functional.interpolate(coarse, job.x.shape[-2:], mode="nearest")
