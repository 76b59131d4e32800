"""A typical script that explains one picture with Captum: load ResNet18, preprocess, explain, save a PNG.

    python cold_saliency.py WEIGHTS.pth PICTURE OUT.png THREADS

Prints the class. The network, the preprocessing and the class are those of `monosplit explain`.
"""

import sys

import torch
from captum.attr import Saliency
from PIL import Image
from torchvision import models, transforms

weights, picture, out, threads = sys.argv[1:]
torch.set_num_threads(int(threads))
network = models.resnet18()
network.load_state_dict(torch.load(weights))
network.eval()
prepare = transforms.Compose([
    transforms.Resize(256),
    transforms.CenterCrop(224),
    transforms.ToTensor(),
    transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
])
x = prepare(Image.open(picture).convert("RGB"))[None]
with torch.inference_mode():
    top = network(x).argmax().item()
saliency = Saliency(network).attribute(x, target=top)[0].amax(0)
grey = (255 * saliency / saliency.max()).byte().numpy()
Image.fromarray(grey).save(out)
print(top)
