"""Faults that public reports describe for servers doing this job; each test is named by its issue number.

The inputs are literal. Ids and texts were computed with the tokenizers and checked against vLLM 0.33.

Covered (`project#number`), for whole answers; those of streams below:

- test_characters: vllm-mlx#109, cog-llama-template#75, mlx-vlm#1076, mlx-vlm#1129, lattice#751,
  llama.cpp#14937, tokenizers#1705, vllm#24159, vllm#48853, vllm#47301, sglang#34852
- test_spaces_and_markers: vllm#29953, llama2.c#41, transformers#36622, llama.cpp#24008, huggingface.js#466,
  vllm#7033
- test_stops: text-generation-inference#1039, vllm#57052, vllm#3672, vllm#1049
- test_logprobs: vllm#28874, standardcompletions#2, sglang#32290, vllm#34875, sglang#5984, mlx-omni-server#56,
  tabbyAPI#141, xinference#5245, vllm#6223, vllm#5699
- test_prompt_ids: vllm#27515, vllm#38187, llm-d-kv-cache#573, llm-d-router#1019, llm-d-router#2641,
  transformers#29279, llama.cpp#7049, speculators#1079
- test_messages: llama-cpp-python#2324, vllm#54987, vllm.cpp#526, vllm#48922, vllm#50861, transformers#35433,
  vllm#9446
- test_templates: vllm#17119, sglang#20700, llama.cpp#11402, mlx-lm#1375, vllm#27205, Megatron-LM#6818
- test_input_checks: vllm#7746, vllm#51795, vllm#26797, llm-d-inference-sim#678, llm-agent#39, vllm#36379,
  Rapid-MLX#730, aider#4987, llama.cpp#9210
- test_stream_text: vllm-mlx#109, cog-llama-template#75, mlx-vlm#1076, mlx-vlm#1129, lattice#751,
  llama.cpp#14937, tokenizers#1705, vllm#24159, vllm#48853, vllm#47301, sglang#34740 (text), sglang#34852,
  vllm#29953, llama2.c#41, transformers#36622, llama.cpp#24008, huggingface.js#466, vllm#7033
- test_stream_stops: text-generation-inference#1039, vllm#57052, vllm#3672, vllm#1049
- test_stream_logprobs: vllm#28874, standardcompletions#2, vllm#34875, xinference#5245, vllm#5699,
  llm-d-inference-sim#678 (candidates)
- test_stream_states: vllm#50550, vllm#47161, vllm#51795, sglang#34740 (state), litellm#25410, llm-agent#39,
  llm-d-inference-sim#678 (chunks), aider#4987
- test_prompt_embeds: vllm#55451, vllm#30572, vllm#22962, vllm#12366
- test_costs: sglang#34740, vllm#24910, cheshire-cat#1118, vllm#4699, vllm#5206
- test_shared_tokenizer: tokenizers#537, transformers#47085
- test_http: vllm#386, hypercorn#284
- test_parsing: livekit-agents#5840, vllm#28806, vllm#10395, vllm#55082, vllm#19056, vllm#9209, mlx-lm#1375
  (ids), vllm#55195, vllm#42691, vllm-mlx#677, litellm#15166, vllm#19222, LocalAI#11791, vllm#46464,
  frontend-crates#69, sglang#31912, vllm#55473
- offload/test_known_faults: anyio#71, trio#810, anyio#947, anyio#787, trio#548
- served/test_known_faults, and its docstring for what other tests over a socket cover: vllm#24910 (probe),
  vllm-mlx#416, vllm#38157 (large answers, large tensors), ATOM#1562, anyio#787 (clients that go),
  hypercorn#322, snekomatic#41, hypercorn#282, hypercorn#284 (slow bodies, memory), hypercorn#308 (idle
  connections, grace)
- served/test_known_faults_in_bursts: ray#54070, BentoML#2781, trio#810, tokenizers#1539

The front end's, in the folders of its own tests:

- front/test_leaving: vllm#25697, anyio#787; front/test_event_stream: hypercorn#322, hypercorn#308 (streams)
- served/test_front_events: vllm#36379 (usage), tt-inference-server#632, Rapid-MLX#730 and hypercorn#308
  (streams)
- served/test_front_hangup: connect-py#174, daf_butler#1407, lmstudio-bug-tracker#1994, vllm#25697, ATOM#1562
"""

from pathlib import Path

import pytest
from in_process import InProcessServer
from opened_models import opened


def _open(folder: Path) -> InProcessServer:
    return InProcessServer(opened(folder))


@pytest.fixture(scope="session")
def smollm2(model_folders: Path) -> InProcessServer:
    """Byte-level BPE, 49,152 ids, BOS and EOS 1 and 2, context 8,192, a default system message."""
    return _open(model_folders / "smollm2")


@pytest.fixture(scope="session")
def qwen3(model_folders: Path) -> InProcessServer:
    """Byte-level BPE, NFC, 248,077 ids in a model of 248,320; markers that are added but not special."""
    return _open(model_folders / "qwen3")


@pytest.fixture(scope="session")
def mistral(model_folders: Path) -> InProcessServer:
    """SentencePiece with byte fallback, 32,000 ids, adds BOS 1; its template knows two roles."""
    return _open(model_folders / "mistral-hf")


@pytest.fixture(scope="session")
def deepseek(model_folders: Path) -> InProcessServer:
    """Byte-level BPE, 129,280 ids, BOS and EOS 0 and 1, written by its template."""
    return _open(model_folders / "deepseek")
