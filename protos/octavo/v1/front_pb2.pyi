from octavo.v1 import admin_pb2 as _admin_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FrontReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FRONT_REASON_UNSPECIFIED: _ClassVar[FrontReason]
    FRONT_REASON_STOP: _ClassVar[FrontReason]
    FRONT_REASON_LENGTH: _ClassVar[FrontReason]
    FRONT_REASON_CANCELLED: _ClassVar[FrontReason]
    FRONT_REASON_DEADLINE: _ClassVar[FrontReason]
    FRONT_REASON_FAILED: _ClassVar[FrontReason]
    FRONT_REASON_NO_NUMBERS: _ClassVar[FrontReason]
    FRONT_REASON_NO_MEMORY: _ClassVar[FrontReason]
    FRONT_REASON_NO_MASK: _ClassVar[FrontReason]
FRONT_REASON_UNSPECIFIED: FrontReason
FRONT_REASON_STOP: FrontReason
FRONT_REASON_LENGTH: FrontReason
FRONT_REASON_CANCELLED: FrontReason
FRONT_REASON_DEADLINE: FrontReason
FRONT_REASON_FAILED: FrontReason
FRONT_REASON_NO_NUMBERS: FrontReason
FRONT_REASON_NO_MEMORY: FrontReason
FRONT_REASON_NO_MASK: FrontReason

class FrontMessage(_message.Message):
    __slots__ = ("protocol", "stay", "is_listening", "freed_names", "claimed_names", "commands", "service")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    STAY_FIELD_NUMBER: _ClassVar[int]
    IS_LISTENING_FIELD_NUMBER: _ClassVar[int]
    FREED_NAMES_FIELD_NUMBER: _ClassVar[int]
    CLAIMED_NAMES_FIELD_NUMBER: _ClassVar[int]
    COMMANDS_FIELD_NUMBER: _ClassVar[int]
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    stay: str
    is_listening: bool
    freed_names: _containers.RepeatedScalarFieldContainer[bytes]
    claimed_names: _containers.RepeatedScalarFieldContainer[bytes]
    commands: _containers.RepeatedCompositeFieldContainer[FrontCommand]
    service: _admin_pb2.Service
    def __init__(self, protocol: _Optional[int] = ..., stay: _Optional[str] = ..., is_listening: _Optional[bool] = ..., freed_names: _Optional[_Iterable[bytes]] = ..., claimed_names: _Optional[_Iterable[bytes]] = ..., commands: _Optional[_Iterable[_Union[FrontCommand, _Mapping]]] = ..., service: _Optional[_Union[_admin_pb2.Service, _Mapping]] = ...) -> None: ...

class FrontCommand(_message.Message):
    __slots__ = ("submit", "abort", "mask")
    SUBMIT_FIELD_NUMBER: _ClassVar[int]
    ABORT_FIELD_NUMBER: _ClassVar[int]
    MASK_FIELD_NUMBER: _ClassVar[int]
    submit: FrontSubmit
    abort: FrontAbort
    mask: FrontMask
    def __init__(self, submit: _Optional[_Union[FrontSubmit, _Mapping]] = ..., abort: _Optional[_Union[FrontAbort, _Mapping]] = ..., mask: _Optional[_Union[FrontMask, _Mapping]] = ...) -> None: ...

class FrontSubmit(_message.Message):
    __slots__ = ("id", "label", "prompt", "n", "max_tokens", "stop_token_ids", "sampling", "priority", "tenant", "salt", "deadline", "queue_deadline", "held", "ended", "logprobs", "prompt_logprobs", "num_scored", "is_constrained", "masks")
    ID_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    N_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    STOP_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    SALT_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_FIELD_NUMBER: _ClassVar[int]
    QUEUE_DEADLINE_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    NUM_SCORED_FIELD_NUMBER: _ClassVar[int]
    IS_CONSTRAINED_FIELD_NUMBER: _ClassVar[int]
    MASKS_FIELD_NUMBER: _ClassVar[int]
    id: str
    label: str
    prompt: _containers.RepeatedScalarFieldContainer[int]
    n: int
    max_tokens: int
    stop_token_ids: _containers.RepeatedScalarFieldContainer[int]
    sampling: FrontSampling
    priority: int
    tenant: str
    salt: str
    deadline: float
    queue_deadline: float
    held: _containers.RepeatedCompositeFieldContainer[FrontTokens]
    ended: _containers.RepeatedScalarFieldContainer[int]
    logprobs: int
    prompt_logprobs: int
    num_scored: int
    is_constrained: bool
    masks: _containers.RepeatedCompositeFieldContainer[FrontMask]
    def __init__(self, id: _Optional[str] = ..., label: _Optional[str] = ..., prompt: _Optional[_Iterable[int]] = ..., n: _Optional[int] = ..., max_tokens: _Optional[int] = ..., stop_token_ids: _Optional[_Iterable[int]] = ..., sampling: _Optional[_Union[FrontSampling, _Mapping]] = ..., priority: _Optional[int] = ..., tenant: _Optional[str] = ..., salt: _Optional[str] = ..., deadline: _Optional[float] = ..., queue_deadline: _Optional[float] = ..., held: _Optional[_Iterable[_Union[FrontTokens, _Mapping]]] = ..., ended: _Optional[_Iterable[int]] = ..., logprobs: _Optional[int] = ..., prompt_logprobs: _Optional[int] = ..., num_scored: _Optional[int] = ..., is_constrained: _Optional[bool] = ..., masks: _Optional[_Iterable[_Union[FrontMask, _Mapping]]] = ...) -> None: ...

class FrontTokens(_message.Message):
    __slots__ = ("ids",)
    IDS_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, ids: _Optional[_Iterable[int]] = ...) -> None: ...

class FrontSampling(_message.Message):
    __slots__ = ("temperature", "top_p", "min_p", "top_k", "repetition_penalty", "presence_penalty", "frequency_penalty", "seed", "bias_tokens", "bias_values", "bias_until", "bias_contexts")
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    TOP_P_FIELD_NUMBER: _ClassVar[int]
    MIN_P_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    REPETITION_PENALTY_FIELD_NUMBER: _ClassVar[int]
    PRESENCE_PENALTY_FIELD_NUMBER: _ClassVar[int]
    FREQUENCY_PENALTY_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    BIAS_TOKENS_FIELD_NUMBER: _ClassVar[int]
    BIAS_VALUES_FIELD_NUMBER: _ClassVar[int]
    BIAS_UNTIL_FIELD_NUMBER: _ClassVar[int]
    BIAS_CONTEXTS_FIELD_NUMBER: _ClassVar[int]
    temperature: float
    top_p: float
    min_p: float
    top_k: int
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    seed: int
    bias_tokens: _containers.RepeatedScalarFieldContainer[int]
    bias_values: _containers.RepeatedScalarFieldContainer[float]
    bias_until: _containers.RepeatedScalarFieldContainer[int]
    bias_contexts: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, temperature: _Optional[float] = ..., top_p: _Optional[float] = ..., min_p: _Optional[float] = ..., top_k: _Optional[int] = ..., repetition_penalty: _Optional[float] = ..., presence_penalty: _Optional[float] = ..., frequency_penalty: _Optional[float] = ..., seed: _Optional[int] = ..., bias_tokens: _Optional[_Iterable[int]] = ..., bias_values: _Optional[_Iterable[float]] = ..., bias_until: _Optional[_Iterable[int]] = ..., bias_contexts: _Optional[_Iterable[int]] = ...) -> None: ...

class FrontAbort(_message.Message):
    __slots__ = ("request", "at", "branch")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    BRANCH_FIELD_NUMBER: _ClassVar[int]
    request: str
    at: int
    branch: int
    def __init__(self, request: _Optional[str] = ..., at: _Optional[int] = ..., branch: _Optional[int] = ...) -> None: ...

class FrontMask(_message.Message):
    __slots__ = ("request", "branch", "position", "mask")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    BRANCH_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    MASK_FIELD_NUMBER: _ClassVar[int]
    request: str
    branch: int
    position: int
    mask: bytes
    def __init__(self, request: _Optional[str] = ..., branch: _Optional[int] = ..., position: _Optional[int] = ..., mask: _Optional[bytes] = ...) -> None: ...

class FrontNews(_message.Message):
    __slots__ = ("protocol", "requests", "started", "scored", "token_requests", "token_branches", "token_positions", "tokens", "token_logprob_sizes", "token_logprobs", "finished", "refused", "owners")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    SCORED_FIELD_NUMBER: _ClassVar[int]
    TOKEN_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_BRANCHES_FIELD_NUMBER: _ClassVar[int]
    TOKEN_POSITIONS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_LOGPROB_SIZES_FIELD_NUMBER: _ClassVar[int]
    TOKEN_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    OWNERS_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    requests: _containers.RepeatedScalarFieldContainer[str]
    started: _containers.RepeatedCompositeFieldContainer[FrontStarted]
    scored: _containers.RepeatedCompositeFieldContainer[FrontScored]
    token_requests: bytes
    token_branches: bytes
    token_positions: bytes
    tokens: bytes
    token_logprob_sizes: bytes
    token_logprobs: bytes
    finished: _containers.RepeatedCompositeFieldContainer[FrontFinished]
    refused: _containers.RepeatedCompositeFieldContainer[FrontRefused]
    owners: _containers.RepeatedCompositeFieldContainer[FrontOwner]
    def __init__(self, protocol: _Optional[int] = ..., requests: _Optional[_Iterable[str]] = ..., started: _Optional[_Iterable[_Union[FrontStarted, _Mapping]]] = ..., scored: _Optional[_Iterable[_Union[FrontScored, _Mapping]]] = ..., token_requests: _Optional[bytes] = ..., token_branches: _Optional[bytes] = ..., token_positions: _Optional[bytes] = ..., tokens: _Optional[bytes] = ..., token_logprob_sizes: _Optional[bytes] = ..., token_logprobs: _Optional[bytes] = ..., finished: _Optional[_Iterable[_Union[FrontFinished, _Mapping]]] = ..., refused: _Optional[_Iterable[_Union[FrontRefused, _Mapping]]] = ..., owners: _Optional[_Iterable[_Union[FrontOwner, _Mapping]]] = ...) -> None: ...

class FrontStarted(_message.Message):
    __slots__ = ("request", "queued", "cached")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    QUEUED_FIELD_NUMBER: _ClassVar[int]
    CACHED_FIELD_NUMBER: _ClassVar[int]
    request: str
    queued: float
    cached: int
    def __init__(self, request: _Optional[str] = ..., queued: _Optional[float] = ..., cached: _Optional[int] = ...) -> None: ...

class FrontScored(_message.Message):
    __slots__ = ("request", "first", "logprobs")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    request: str
    first: int
    logprobs: bytes
    def __init__(self, request: _Optional[str] = ..., first: _Optional[int] = ..., logprobs: _Optional[bytes] = ...) -> None: ...

class FrontFinished(_message.Message):
    __slots__ = ("request", "branch", "reason", "num_tokens", "preemptions", "stop_token")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    BRANCH_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    NUM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PREEMPTIONS_FIELD_NUMBER: _ClassVar[int]
    STOP_TOKEN_FIELD_NUMBER: _ClassVar[int]
    request: str
    branch: int
    reason: FrontReason
    num_tokens: int
    preemptions: int
    stop_token: int
    def __init__(self, request: _Optional[str] = ..., branch: _Optional[int] = ..., reason: _Optional[_Union[FrontReason, str]] = ..., num_tokens: _Optional[int] = ..., preemptions: _Optional[int] = ..., stop_token: _Optional[int] = ...) -> None: ...

class FrontRefused(_message.Message):
    __slots__ = ("request", "reason", "message", "retry_after")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_FIELD_NUMBER: _ClassVar[int]
    request: str
    reason: str
    message: str
    retry_after: float
    def __init__(self, request: _Optional[str] = ..., reason: _Optional[str] = ..., message: _Optional[str] = ..., retry_after: _Optional[float] = ...) -> None: ...

class FrontOwner(_message.Message):
    __slots__ = ("name", "number")
    NAME_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    name: bytes
    number: int
    def __init__(self, name: _Optional[bytes] = ..., number: _Optional[int] = ...) -> None: ...
