"""Holds explanations of texts by the networks of `transformers`, as people export them, against Captum.

    cargo build --release
    python scripts/check_transformers.py [--program PROGRAM] [NETWORK …]

BERT, RoBERTa, DistilBERT, GPT-2 (a classifier and a language model) and the text tower of CLIP, small and with random weights, are
exported by both exporters of `torch.onnx.export` with open batch and length. Three texts of ten tokens, two of them padded, are
explained by integrated gradients from a text of padding; Captum's LayerIntegratedGradients explains the PyTorch networks in double
precision. `monosplit explain --precision f64` must agree to 1e-5 of the largest number, and compiled files in ONNX Runtime to 1e-4 in
single and 1e-7 in double precision; ONNX Runtime must return PyTorch's numbers for the exported file to 1e-4. Nothing is downloaded.
The exit code is 1 if a limit is passed.
"""

import argparse
import pathlib
import sys
import tempfile
import warnings

import numpy as np
import onnxruntime
import torch
import transformers
from captum.attr import LayerIntegratedGradients
from check_inputs import asked, distance

ROOT = pathlib.Path(__file__).parent.parent
STEPS, LENGTH, WORDS, LAST, PADDING = 20, 10, 99, 98, 1
SHAPE = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, vocab_size=WORDS,
             max_position_embeddings=64)
GPT2 = dict(n_embd=32, n_layer=2, n_head=4, vocab_size=WORDS, n_positions=64, bos_token_id=97, eos_token_id=LAST)


class Text(torch.nn.Module):
    """A network of named inputs and one output."""

    def __init__(self, network, inputs, output, words):
        super().__init__()
        self.network, self.inputs, self.output, self.words = network, inputs, output, words

    def forward(self, *values):
        found = self.network(**dict(zip(self.inputs, values)), return_dict=True)
        return found[self.output]


def networks():
    """The networks by name, each with the target that is explained and the number it is."""
    classes = dict(num_labels=3)
    both = ["input_ids", "attention_mask"]
    class_1 = ("class:1", lambda out: out[:, 1])
    bert = transformers.BertForSequenceClassification(transformers.BertConfig(**SHAPE, **classes))
    yield "bert", Text(bert, both + ["token_type_ids"], "logits", bert.bert.embeddings.word_embeddings), class_1
    eager = transformers.BertForSequenceClassification(transformers.BertConfig(**SHAPE, **classes, attn_implementation="eager"))
    yield "bert-eager", Text(eager, both, "logits", eager.bert.embeddings.word_embeddings), class_1
    roberta = transformers.RobertaForSequenceClassification(transformers.RobertaConfig(**SHAPE, **classes))
    yield "roberta", Text(roberta, both, "logits", roberta.roberta.embeddings.word_embeddings), class_1
    distil = transformers.DistilBertForSequenceClassification(transformers.DistilBertConfig(
        dim=32, n_layers=2, n_heads=4, hidden_dim=48, vocab_size=WORDS, max_position_embeddings=64, **classes))
    yield "distilbert", Text(distil, both, "logits", distil.distilbert.embeddings.word_embeddings), class_1
    gpt2 = transformers.GPT2ForSequenceClassification(transformers.GPT2Config(**GPT2, **classes, pad_token_id=PADDING, use_cache=False))
    yield "gpt2", Text(gpt2, both, "logits", gpt2.transformer.wte), class_1
    language = transformers.GPT2LMHeadModel(transformers.GPT2Config(**GPT2, use_cache=False))
    yield "gpt2-language", Text(language, both, "logits", language.transformer.wte), ("cell:out[-1,5]", lambda out: out[:, -1, 5])
    clip = transformers.CLIPTextModelWithProjection(transformers.CLIPTextConfig(
        **SHAPE, projection_dim=16, eos_token_id=LAST, bos_token_id=97, pad_token_id=PADDING))
    yield "clip", Text(clip, both, "text_embeds", clip.text_model.embeddings.token_embedding), ("norm:out", lambda out: out.norm(dim=1))


def texts(inputs):
    numbers = np.random.RandomState(1)
    ids = numbers.randint(3, 90, (3, LENGTH))
    mask = np.ones_like(ids)
    for text, length in enumerate([LENGTH, 8, 7]):
        ids[text, length - 1] = LAST
        ids[text, length:], mask[text, length:] = PADDING, 0
    kinds = np.zeros_like(ids)
    kinds[:, 5:] = 1
    return [torch.tensor({"input_ids": ids, "attention_mask": mask, "token_type_ids": kinds}[name]) for name in inputs]


def exported(network, values, file, dynamo):
    names = network.inputs
    if dynamo:
        batch, length = torch.export.Dim("batch"), torch.export.Dim("length", max=60)
        shapes = (tuple({0: batch, 1: length} for _ in names),)
        torch.onnx.export(network, tuple(values), file, dynamo=True, input_names=names, output_names=["out"], dynamic_shapes=shapes,
                          external_data=False, verbose=False)
    else:
        axes = {name: {0: "batch", 1: "length"} for name in names} | {"out": {0: "batch"}}
        torch.onnx.export(network, tuple(values), file, dynamo=False, input_names=names, output_names=["out"], dynamic_axes=axes,
                          opset_version=17)
    # The older exporter leaves the network as it was when it was made.
    network.eval()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=ROOT / "target/release/monosplit")
    parser.add_argument("networks", nargs="*")
    options = parser.parse_args()
    onnxruntime.set_default_logger_severity(4)
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    torch.manual_seed(0)
    worst = 0.0
    with tempfile.TemporaryDirectory() as made:
        scratch = pathlib.Path(made)
        for name, network, (target, number) in networks():
            network.eval()
            if options.networks and name not in options.networks:
                continue
            values = texts(network.inputs)
            files = {}
            for exporter, dynamo in [("older", False), ("newer", True)]:
                files[exporter] = scratch / f"{name}-{exporter}.onnx"
                exported(network, values, files[exporter], dynamo)
            given = []
            for input, value in zip(network.inputs, values):
                np.save(scratch / f"{input}.npy", value.numpy())
                given += ["--input", f"{input}={scratch / input}.npy"]
            baseline = torch.full_like(values[0][:1], PADDING)
            np.save(scratch / "baseline.npy", baseline.numpy())
            single = network(*values).detach().numpy()
            network.double()
            way = LayerIntegratedGradients(lambda *all: number(network(*all)), network.words)
            wanted = way.attribute(values[0], baselines=baseline.expand_as(values[0]), additional_forward_args=tuple(values[1:]),
                                   n_steps=STEPS).sum(2).detach().numpy()
            method = f"integrated-gradients:steps={STEPS},baseline={scratch / 'baseline.npy'}"
            common = ["--of", "input_ids", "--target", target]
            for exporter, file in files.items():
                feed = {input: value.numpy() for input, value in zip(network.inputs, values)}
                session = onnxruntime.InferenceSession(file)
                read = {input.name for input in session.get_inputs()}
                returned = session.run(None, {key: value for key, value in feed.items() if key in read})[0]
                errors = {"ONNX Runtime": (distance(returned, single), 1e-4)}
                asked(options.program, "explain", file, *given, *common, "--method", method, "--precision", "f64",
                      "--raw", scratch / "map.npy", "-o", scratch / "drawn")
                errors["explain"] = (distance(np.load(scratch / "map.npy"), wanted), 1e-5)
                for precision, limit in [("f32", 1e-4), ("f64", 1e-7)]:
                    compiled = scratch / "compiled.onnx"
                    asked(options.program, "compile", file, "--input-shape", LENGTH, *common, "--method", method, "--precision", precision,
                          "-o", compiled)
                    session = onnxruntime.InferenceSession(compiled)
                    [output] = [output.name for output in session.get_outputs() if output.name.startswith("saliency")]
                    read = {input.name for input in session.get_inputs()}
                    found = session.run([output], {key: value for key, value in feed.items() if key in read})[0]
                    errors[precision] = (distance(found, wanted), limit)
                for what, (error, limit) in errors.items():
                    print(f"{name:<15}{exporter:<7}{what:<14}{error:.0e}{'' if error <= limit else '  FAILS'}", flush=True)
                    worst = max(worst, error / limit)
    sys.exit(worst > 1)


if __name__ == "__main__":
    main()
