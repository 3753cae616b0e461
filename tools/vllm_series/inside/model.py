"""Make a small language model on the spot: no hub, no download, the same bytes every time.

Run inside a vLLM environment: `python model.py FOLDER [DRAFT]`. Writes a Llama-shaped model
(config, random weights of a fixed seed, tokenizer, chat template) that loads like any model folder,
and in DRAFT the same with some noise in its weights: a drafter that is right one time in three.

The weights are random, so the text means nothing; what is compared is one run of an engine with
another. Two things are chosen for that. Each matrix is scaled so that logits are far apart, since a
model whose logits are nearly equal would turn the last bit of a sum into another token. And what
attention adds is kept small, so that the next token hangs mostly on the last one: greedy decoding
then runs into loops, which an n-gram drafter can guess, and out of them again.
"""

from __future__ import annotations

import json
import string
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

SEED = 20
HIDDEN = 96
LAYERS = 2
HEADS = 4
KEY_VALUE_HEADS = 2
HEAD_SIZE = 32
"""The smallest head that the CPU attention of every supported release takes."""
INNER = 256
POSITIONS = 2048
NOISE = 0.1
"""Of the draft model's weights, beside their own size."""
SPECIAL = ("<pad>", "<s>", "</s>", "<|user|>", "<|assistant|>", "<|system|>")
PAD, BEGIN, END = 0, 1, 2
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] + '</s>' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def vocabulary() -> list[str]:
    """Special tokens, then one token a byte; byte-level, so that any text has tokens and any
    JSON can be written. Two-letter words on top, so that a token is not always one letter."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pairs = [a + b for a in string.ascii_lowercase for b in "aeiou"]
    return [*SPECIAL, *alphabet, *pairs]


def write_tokenizer(folder: Path) -> int:
    """The number of tokens. Files as transformers reads them."""
    words = vocabulary()
    merges = [(a, b) for a in string.ascii_lowercase for b in "aeiou"]
    tokenizer = Tokenizer(
        models.BPE(vocab={word: at for at, word in enumerate(words)}, merges=merges)
    )
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(SPECIAL))
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": SPECIAL[BEGIN],
        "eos_token": SPECIAL[END],
        "pad_token": SPECIAL[PAD],
        "model_max_length": POSITIONS,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=1))
    return len(words)


def write_weights(folder: Path, tokens: int, noise: float) -> int:
    """The number of weights. `noise` is its size beside that of the weights."""
    draw = torch.Generator().manual_seed(SEED)

    def matrix(rows: int, columns: int, scale: float) -> torch.Tensor:
        values = torch.randn(rows, columns, generator=draw, dtype=torch.float32)
        return values * (scale / columns**0.5)

    weights = {
        "model.embed_tokens.weight": matrix(tokens, HIDDEN, 8.0),
        "model.norm.weight": torch.ones(HIDDEN),
        "lm_head.weight": matrix(tokens, HIDDEN, 8.0),
    }
    for layer in range(LAYERS):
        at = f"model.layers.{layer}"
        weights |= {
            f"{at}.input_layernorm.weight": torch.ones(HIDDEN),
            f"{at}.post_attention_layernorm.weight": torch.ones(HIDDEN),
            f"{at}.self_attn.q_proj.weight": matrix(HEADS * HEAD_SIZE, HIDDEN, 2.0),
            f"{at}.self_attn.k_proj.weight": matrix(KEY_VALUE_HEADS * HEAD_SIZE, HIDDEN, 2.0),
            f"{at}.self_attn.v_proj.weight": matrix(KEY_VALUE_HEADS * HEAD_SIZE, HIDDEN, 1.0),
            f"{at}.self_attn.o_proj.weight": matrix(HIDDEN, HEADS * HEAD_SIZE, 0.1),
            f"{at}.mlp.gate_proj.weight": matrix(INNER, HIDDEN, 1.0),
            f"{at}.mlp.up_proj.weight": matrix(INNER, HIDDEN, 1.0),
            f"{at}.mlp.down_proj.weight": matrix(HIDDEN, INNER, 0.5),
        }
    if noise:
        for name, weight in weights.items():
            if weight.dim() == 2:
                rows, columns = weight.shape
                weights[name] = weight + noise * weight.std() * matrix(rows, columns, columns**0.5)
    save_file(weights, str(folder / "model.safetensors"), metadata={"format": "pt"})
    return sum(weight.numel() for weight in weights.values())


def write_config(folder: Path, tokens: int) -> None:
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": tokens,
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KEY_VALUE_HEADS,
        "head_dim": HEAD_SIZE,
        "hidden_act": "silu",
        "max_position_embeddings": POSITIONS,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
        "pad_token_id": PAD,
        "bos_token_id": BEGIN,
        "eos_token_id": END,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    generation = {"bos_token_id": BEGIN, "eos_token_id": END, "pad_token_id": PAD}
    (folder / "generation_config.json").write_text(json.dumps(generation, indent=1))


def write_model(folder: Path, noise: float = 0.0) -> int:
    """Write a whole model folder; the number of weights."""
    folder.mkdir(parents=True, exist_ok=True)
    tokens = write_tokenizer(folder)
    write_config(folder, tokens)
    return write_weights(folder, tokens, noise)


if __name__ == "__main__":
    for draft in sys.argv[2:]:
        write_model(Path(draft), NOISE)
    sys.stdout.write(f"{write_model(Path(sys.argv[1])):,} weights in {sys.argv[1]}\n")
