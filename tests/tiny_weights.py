"""A model folder with weights: random ones, two narrow layers, as fast as they are wrong."""

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import save_file


def write_tiny_model(tokenizer_folder: Path, folder: Path) -> Path:
    """Copy a tokenizer's folder, and add weights for its configuration."""
    shutil.copytree(tokenizer_folder, folder)
    config = json.loads((folder / "config.json").read_text())
    config["tie_word_embeddings"] = True
    (folder / "config.json").write_text(json.dumps(config))
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    keys = hidden * config["num_key_value_heads"] // config["num_attention_heads"]
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (config["vocab_size"], hidden),
        "model.norm.weight": (hidden,),
    }
    for layer in range(config["num_hidden_layers"]):
        start = f"model.layers.{layer}."
        shapes |= {
            start + "input_layernorm.weight": (hidden,),
            start + "post_attention_layernorm.weight": (hidden,),
            start + "self_attn.q_proj.weight": (hidden, hidden),
            start + "self_attn.k_proj.weight": (keys, hidden),
            start + "self_attn.v_proj.weight": (keys, hidden),
            start + "self_attn.o_proj.weight": (hidden, hidden),
            start + "mlp.gate_proj.weight": (inner, hidden),
            start + "mlp.up_proj.weight": (inner, hidden),
            start + "mlp.down_proj.weight": (hidden, inner),
        }
    random = torch.Generator().manual_seed(0)
    weights = {name: torch.randn(shape, generator=random) for name, shape in shapes.items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder
