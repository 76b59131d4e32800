"""Golden values of AttnLRP by the package of its authors, `lxt` 2.1 of PyPI, on two small transformers.

    python scripts/make_attention_relevance.py
    python scripts/make_attention_peer.py

`peer-block.npy` is the relevance of `x.npy` in `network.onnx` of the other script, a block with a gated feed-forward layer;
`vit.onnx` a vision transformer of torchvision with GELU, `vit-x.npy` images and `peer-vit.npy` their relevance. Both networks are
written down with the functions of `lxt.explicit`, each of which hands relevance down by the rule the authors gave it, in double
precision. They add ε to denominators whatever their sign, and each has another; here all are so small that neither matters.
"""

import warnings

import numpy as np
import torch
import torch.nn.functional as F
import torchvision
from lxt.explicit import functional as lf
from lxt.explicit import rules
from make_attention_relevance import FOLDER, HEADS, network

EPSILON = 1e-13


def linear(x, layer):
    return lf.linear_epsilon(x, layer.weight, layer.bias, EPSILON)


def norm(x, layer):
    return lf.layer_norm_grad_fn.apply(x, layer.weight, layer.bias, layer.eps, EPSILON)


def add(a, b):
    return lf.add2(a, b.expand_as(a), False, EPSILON)


def split(x, heads):
    return x.reshape(*x.shape[:2], heads, -1).transpose(1, 2)


def attention(q, k, v, heads):
    q, k, v = split(q, heads), split(k, heads), split(v, heads)
    dots = lf.mul2(lf.matmul(q, k.transpose(2, 3), False, EPSILON), q.shape[-1] ** -0.5)
    mixed = lf.matmul(lf.softmax(dots, -1), v, False, EPSILON)
    return mixed.transpose(1, 2).flatten(2)


def embedded(x, patches, token, position):
    x = rules.epsilon_lrp(patches, EPSILON, x).flatten(2).transpose(1, 2)
    return add(torch.cat([token.expand(x.shape[0], -1, -1), x], 1), position)


def gated(net, image):
    x, block = embedded(image, net.patches, net.token, net.position), net.block
    y = norm(x, block.norm1)
    x = add(x, linear(attention(linear(y, block.q), linear(y, block.k), linear(y, block.v), HEADS), block.out))
    y = norm(x, block.norm2)
    fed = lf.mul2(rules.identity(F.silu, linear(y, block.gate)), linear(y, block.up))
    return linear(norm(add(x, linear(fed, block.down)), net.norm)[:, 0], net.head)


def vision(net, image):
    x = embedded(image, net.conv_proj, net.class_token, net.encoder.pos_embedding)
    for layer in net.encoder.layers:
        own = layer.self_attention
        y = norm(x, layer.ln_1)
        weights, biases = own.in_proj_weight.chunk(3), own.in_proj_bias.chunk(3)
        q, k, v = (lf.linear_epsilon(y, w, b, EPSILON) for w, b in zip(weights, biases))
        x = add(x, linear(attention(q, k, v, own.num_heads), own.out_proj))
        y = rules.identity(F.gelu, linear(norm(x, layer.ln_2), layer.mlp[0]))
        x = add(x, linear(y, layer.mlp[3]))
    return linear(norm(x, net.encoder.ln)[:, 0], net.heads.head)


def vision_transformer():
    torch.manual_seed(6)
    net = torchvision.models.VisionTransformer(
        image_size=12, patch_size=4, num_layers=2, num_heads=2, hidden_dim=12, mlp_dim=20, num_classes=3
    ).eval()
    with torch.no_grad():
        for name, value in net.named_parameters():
            if name.endswith("bias"):
                value.uniform_(-0.2, 0.2)
        net.class_token.normal_()
        net.heads.head.weight.normal_(std=0.3)
    return net


def relevance(write, net, image, classes):
    net, x = net.double().requires_grad_(False), torch.from_numpy(image).double().requires_grad_()
    scores = write(net, x)
    assert (scores - net(x.detach())).abs().max() < 1e-10, "another network was written down"
    chosen = F.one_hot(torch.from_numpy(classes), scores.shape[1])
    scores.backward(scores.detach() * chosen)
    print(scores.detach().gather(1, torch.from_numpy(classes)[:, None])[:, 0].numpy(), x.grad.sum((1, 2, 3)).numpy())
    return x.grad.numpy()


def main():
    classes = np.load(FOLDER / "classes.npy")
    np.save(FOLDER / "peer-block.npy", relevance(gated, network(), np.load(FOLDER / "x.npy"), classes))
    net = vision_transformer()
    image = np.random.default_rng(6).standard_normal((3, 3, 12, 12)).astype(np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(net, torch.from_numpy(image), str(FOLDER / "vit.onnx"), opset_version=17, dynamo=False,
                          input_names=["x"])
    np.save(FOLDER / "vit-x.npy", image)
    np.save(FOLDER / "peer-vit.npy", relevance(vision, net, image, classes))


if __name__ == "__main__":
    main()
