#!/usr/bin/env python3
"""Writes goldens of low-rank adapters from peft: the folder lora_gpt2, adapters of decoder_gpt2.safetensors as peft saves
them, and lora.safetensors, what peft computes with them in f64: loss, gradients, logits, and the logits after merging.

    make_lora.py [--out DIR] [--check]
    make_lora.py --loads ADAPTERS MODEL.safetensors     checks that peft loads adapters of `cltrain export --adapter`

--check recomputes and compares instead of writing.
"""

import argparse
import json
import os
import tempfile

import numpy as np
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch import nn

import make_decoder
from safetensors_file import load, save

HERE = os.path.dirname(os.path.abspath(__file__))
RANK, ALPHA, FOLDER, FILE = 3, 6, "lora_gpt2", "lora.safetensors"


def randomise(network, generator):
    """Gives adapters numbers that f32 holds exactly. B would begin with zeros, where A has no gradient."""
    with torch.no_grad():
        for name, p in network.named_parameters():
            if "lora_" in name:
                p.copy_((torch.randn(p.shape, generator=generator) * 0.2).float())
    return network


def adapters(network):
    return {name.replace(".default", ""): p for name, p in network.named_parameters() if "lora_" in name}


def gpt2(generator, folder):
    config = LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=["c_attn", "c_proj"], fan_in_fan_out=True)
    network = randomise(get_peft_model(make_decoder.model(), config), generator)
    network.save_pretrained(folder)
    network = network.double().eval()
    tokens = torch.randint(make_decoder.VOCABULARY, (2, 20), generator=generator)
    targets = torch.randint(make_decoder.VOCABULARY, (2, 20), generator=generator)
    logits = network(tokens).logits
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
    loss.backward()
    found = {"tokens": tokens.int().numpy(), "targets": targets.int().numpy(), "logits": logits.detach().numpy(),
             "loss": np.array([loss.item()])}
    for name, p in adapters(network).items():
        found["grad." + name.removeprefix("base_model.model.transformer.")] = p.grad.numpy()
    with torch.no_grad():
        found["merged"] = network.merge_and_unload()(tokens).logits.numpy()
    return found


class Plain(nn.Module):
    """Layers whose weights are [out, in]."""

    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(7, 9), nn.Linear(9, 5)

    def forward(self, x):
        return self.fc2(torch.tanh(self.fc1(x)))


def plain(generator):
    torch.manual_seed(3)
    base = Plain()
    found = {"plain." + name: p.detach().numpy().copy() for name, p in base.named_parameters()}
    network = randomise(get_peft_model(base, LoraConfig(r=2, lora_alpha=5, target_modules=["fc1", "fc2"])), generator)
    for name, p in adapters(network).items():
        found["plain." + name.removeprefix("base_model.model.")] = p.detach().numpy().copy()
    network = network.double().eval()
    x = torch.randn(6, 7, generator=generator).float()
    y = network(x.double())
    target = torch.randn(6, 5, generator=generator).float()
    nn.functional.mse_loss(y, target.double()).backward()
    found |= {"plain.x": x.numpy(), "plain.target": target.numpy(), "plain.y": y.detach().numpy()}
    for name, p in adapters(network).items():
        found["plain.grad." + name.removeprefix("base_model.model.")] = p.grad.numpy()
    return found


def loads(folder, model):
    """Loads adapters onto the model of a file whose shapes tell its sizes, and prints that all were found."""
    from transformers import GPT2Config, GPT2LMHeadModel
    tensors, _ = load(model)
    vocabulary, width = tensors["wte.weight"].shape
    layers = 1 + max(int(name.split(".")[1]) for name in tensors if name.startswith("h."))
    network = GPT2LMHeadModel(GPT2Config(n_layer=layers, n_head=width // 32, n_embd=width, vocab_size=vocabulary,
                                         n_positions=tensors["wpe.weight"].shape[0], bos_token_id=0, eos_token_id=0))
    network = PeftModel.from_pretrained(network, folder)
    stored, _ = load(os.path.join(folder, "adapter_model.safetensors"))
    found = adapters(network)
    assert sorted(found) == sorted(stored), set(found) ^ set(stored)
    assert all(np.array_equal(p.detach().numpy(), stored[name]) for name, p in found.items())
    print(f"peft has all {len(stored)} tensors")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", default=HERE)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--loads", nargs=2)
    options = parser.parse_args()
    if options.loads:
        return loads(*options.loads)
    with tempfile.TemporaryDirectory() as scratch:
        folder = scratch if options.check else os.path.join(options.out, FOLDER)
        tensors = gpt2(torch.Generator().manual_seed(11), folder) | plain(torch.Generator().manual_seed(13))
        if not options.check:
            os.remove(os.path.join(folder, "README.md"))
            save(os.path.join(options.out, FILE), tensors, {"rank": str(RANK), "alpha": str(ALPHA)})
            return None
        stored, _ = load(os.path.join(options.out, FILE))
        assert sorted(stored) == sorted(tensors)
        for name, value in tensors.items():
            assert np.allclose(stored[name], value, rtol=1e-9, atol=1e-12), name
        one, two = (json.load(open(os.path.join(f, "adapter_config.json"))) for f in
                    (folder, os.path.join(options.out, FOLDER)))
        assert one["r"] == two["r"] and one["lora_alpha"] == two["lora_alpha"]
    return None


main()
