"""The GPU-less half of LLM serving: render requests into token ids, derender token ids into answers.

Runs on anyio's trio and asyncio backends. Import from here.
"""

from __future__ import annotations

from msgspec import Struct as _Struct

from .answers.chat import StartedChat as StartedChat
from .answers.completion import StartedCompletion as StartedCompletion
from .answers.stream import AnswerStream as AnswerStream
from .answers.tokens import StartedTokens as StartedTokens
from .derenderer import Derenderer as Derenderer
from .derenderer import open_derenderer as open_derenderer
from .engine.base import Engine as Engine
from .errors import DeadlineExceeded as DeadlineExceeded
from .errors import EngineError as EngineError
from .errors import InvalidRequest as InvalidRequest
from .errors import MalformedRequest as MalformedRequest
from .errors import ModelLoadError as ModelLoadError
from .errors import ModelNotFound as ModelNotFound
from .errors import Overloaded as Overloaded
from .errors import RenderError as RenderError
from .errors import WorkerDied as WorkerDied
from .frontend import Frontend as Frontend
from .model.loading import Model as Model
from .model.loading import open_model as open_model
from .offload.limits import Limits as Limits
from .offload.offloader import Offloader as Offloader
from .offload.offloader import OffloaderStatistics as OffloaderStatistics
from .offload.offloader import open_offloader as open_offloader
from .offload.processes import ProcessStatistics as ProcessStatistics
from .offload.stalls import Stall as Stall
from .offload.stalls import watch_loop as watch_loop
from .offload.stats import HistogramSnapshot as HistogramSnapshot
from .offload.stats import KindStatistics as KindStatistics
from .offload.stats import LimiterStatistics as LimiterStatistics
from .policy import Policy as Policy
from .protocol.chat import ChatCompletion as ChatCompletion
from .protocol.chat import ChatRequest as ChatRequest
from .protocol.completion import Completion as Completion
from .protocol.completion import CompletionRequest as CompletionRequest
from .protocol.derender import DerenderChatRequest as DerenderChatRequest
from .protocol.derender import DerenderCompletionRequest as DerenderCompletionRequest
from .protocol.generate import GenerateChoice as GenerateChoice
from .protocol.generate import GenerateRequest as GenerateRequest
from .protocol.generate import GenerateResponse as GenerateResponse
from .protocol.logprobs import Candidate as Candidate
from .protocol.logprobs import GenerateLogprobs as GenerateLogprobs
from .protocol.logprobs import TokenLogprob as TokenLogprob
from .protocol.sampling import SamplingParams as SamplingParams
from .protocol.stream import ChatChunk as ChatChunk
from .protocol.stream import ChatStreamRequest as ChatStreamRequest
from .protocol.stream import ChunkChoice as ChunkChoice
from .protocol.stream import CompletionChunk as CompletionChunk
from .protocol.stream import CompletionStreamRequest as CompletionStreamRequest
from .protocol.stream import GenerateChunk as GenerateChunk
from .protocol.tokenize import DetokenizeRequest as DetokenizeRequest
from .protocol.tokenize import TokenizeChatRequest as TokenizeChatRequest
from .protocol.tokenize import TokenizeRequest as TokenizeRequest
from .renderer import Renderer as Renderer
from .renderer import open_renderer as open_renderer
from .streams import DerenderStream as DerenderStream
from .workspace import Workspace as Workspace
from .workspace import open_workspace as open_workspace
from .workspace import workspace_of as workspace_of

__all__ = [
    "AnswerStream",
    "Candidate",
    "ChatChunk",
    "ChatCompletion",
    "ChatRequest",
    "ChatStreamRequest",
    "ChunkChoice",
    "Completion",
    "CompletionChunk",
    "CompletionRequest",
    "CompletionStreamRequest",
    "DeadlineExceeded",
    "DerenderChatRequest",
    "DerenderCompletionRequest",
    "DerenderStream",
    "Derenderer",
    "DetokenizeRequest",
    "Engine",
    "EngineError",
    "Frontend",
    "GenerateChoice",
    "GenerateChunk",
    "GenerateLogprobs",
    "GenerateRequest",
    "GenerateResponse",
    "HistogramSnapshot",
    "InvalidRequest",
    "KindStatistics",
    "LimiterStatistics",
    "Limits",
    "MalformedRequest",
    "Model",
    "ModelLoadError",
    "ModelNotFound",
    "Offloader",
    "OffloaderStatistics",
    "Overloaded",
    "Policy",
    "ProcessStatistics",
    "RenderError",
    "Renderer",
    "SamplingParams",
    "Stall",
    "StartedChat",
    "StartedCompletion",
    "StartedTokens",
    "TokenLogprob",
    "TokenizeChatRequest",
    "TokenizeRequest",
    "WorkerDied",
    "Workspace",
    "open_derenderer",
    "open_model",
    "open_offloader",
    "open_renderer",
    "open_workspace",
    "watch_loop",
    "workspace_of",
]

for _name in __all__:
    # Wire types keep their module: msgspec looks up their annotations there.
    if not isinstance(globals()[_name], type(_Struct)):
        globals()[_name].__module__ = __name__
del _name, _Struct
