from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Epoch(_message.Message):
    __slots__ = ("boot_id", "counter")
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    COUNTER_FIELD_NUMBER: _ClassVar[int]
    boot_id: int
    counter: int
    def __init__(self, boot_id: _Optional[int] = ..., counter: _Optional[int] = ...) -> None: ...

class WorkerMessage(_message.Message):
    __slots__ = ("epoch", "hello", "result", "nack", "heartbeat", "goodbye")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    HELLO_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    NACK_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    GOODBYE_FIELD_NUMBER: _ClassVar[int]
    epoch: Epoch
    hello: Hello
    result: StepResult
    nack: Nack
    heartbeat: Heartbeat
    goodbye: Goodbye
    def __init__(self, epoch: _Optional[_Union[Epoch, _Mapping]] = ..., hello: _Optional[_Union[Hello, _Mapping]] = ..., result: _Optional[_Union[StepResult, _Mapping]] = ..., nack: _Optional[_Union[Nack, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., goodbye: _Optional[_Union[Goodbye, _Mapping]] = ...) -> None: ...

class SchedulerMessage(_message.Message):
    __slots__ = ("epoch", "welcome", "refusal", "plan", "heartbeat", "goodbye", "masks")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    GOODBYE_FIELD_NUMBER: _ClassVar[int]
    MASKS_FIELD_NUMBER: _ClassVar[int]
    epoch: Epoch
    welcome: Welcome
    refusal: Refusal
    plan: StepPlan
    heartbeat: Heartbeat
    goodbye: Goodbye
    masks: StepMasks
    def __init__(self, epoch: _Optional[_Union[Epoch, _Mapping]] = ..., welcome: _Optional[_Union[Welcome, _Mapping]] = ..., refusal: _Optional[_Union[Refusal, _Mapping]] = ..., plan: _Optional[_Union[StepPlan, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., goodbye: _Optional[_Union[Goodbye, _Mapping]] = ..., masks: _Optional[_Union[StepMasks, _Mapping]] = ...) -> None: ...

class PageGeometry(_message.Message):
    __slots__ = ("page_size", "num_layers", "num_kv_heads", "head_dim", "dtype", "layout", "page_bytes")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    NUM_LAYERS_FIELD_NUMBER: _ClassVar[int]
    NUM_KV_HEADS_FIELD_NUMBER: _ClassVar[int]
    HEAD_DIM_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_FIELD_NUMBER: _ClassVar[int]
    PAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    num_layers: int
    num_kv_heads: int
    head_dim: int
    dtype: str
    layout: str
    page_bytes: int
    def __init__(self, page_size: _Optional[int] = ..., num_layers: _Optional[int] = ..., num_kv_heads: _Optional[int] = ..., head_dim: _Optional[int] = ..., dtype: _Optional[str] = ..., layout: _Optional[str] = ..., page_bytes: _Optional[int] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("protocol_major", "protocol_minor", "worker_id", "weights_digest", "geometry", "device_pages", "host_pages", "max_slots", "max_step_tokens", "max_context", "vocab_size", "kernels", "batch_invariant", "needs_zeroed_pages", "capabilities", "copy_bytes_per_second", "prefill_tokens_per_second", "max_prompt_scores", "takes_late_masks")
    PROTOCOL_MAJOR_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_MINOR_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_DIGEST_FIELD_NUMBER: _ClassVar[int]
    GEOMETRY_FIELD_NUMBER: _ClassVar[int]
    DEVICE_PAGES_FIELD_NUMBER: _ClassVar[int]
    HOST_PAGES_FIELD_NUMBER: _ClassVar[int]
    MAX_SLOTS_FIELD_NUMBER: _ClassVar[int]
    MAX_STEP_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MAX_CONTEXT_FIELD_NUMBER: _ClassVar[int]
    VOCAB_SIZE_FIELD_NUMBER: _ClassVar[int]
    KERNELS_FIELD_NUMBER: _ClassVar[int]
    BATCH_INVARIANT_FIELD_NUMBER: _ClassVar[int]
    NEEDS_ZEROED_PAGES_FIELD_NUMBER: _ClassVar[int]
    CAPABILITIES_FIELD_NUMBER: _ClassVar[int]
    COPY_BYTES_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    PREFILL_TOKENS_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    MAX_PROMPT_SCORES_FIELD_NUMBER: _ClassVar[int]
    TAKES_LATE_MASKS_FIELD_NUMBER: _ClassVar[int]
    protocol_major: int
    protocol_minor: int
    worker_id: str
    weights_digest: bytes
    geometry: PageGeometry
    device_pages: int
    host_pages: int
    max_slots: int
    max_step_tokens: int
    max_context: int
    vocab_size: int
    kernels: str
    batch_invariant: bool
    needs_zeroed_pages: bool
    capabilities: _containers.RepeatedScalarFieldContainer[str]
    copy_bytes_per_second: float
    prefill_tokens_per_second: float
    max_prompt_scores: int
    takes_late_masks: bool
    def __init__(self, protocol_major: _Optional[int] = ..., protocol_minor: _Optional[int] = ..., worker_id: _Optional[str] = ..., weights_digest: _Optional[bytes] = ..., geometry: _Optional[_Union[PageGeometry, _Mapping]] = ..., device_pages: _Optional[int] = ..., host_pages: _Optional[int] = ..., max_slots: _Optional[int] = ..., max_step_tokens: _Optional[int] = ..., max_context: _Optional[int] = ..., vocab_size: _Optional[int] = ..., kernels: _Optional[str] = ..., batch_invariant: _Optional[bool] = ..., needs_zeroed_pages: _Optional[bool] = ..., capabilities: _Optional[_Iterable[str]] = ..., copy_bytes_per_second: _Optional[float] = ..., prefill_tokens_per_second: _Optional[float] = ..., max_prompt_scores: _Optional[int] = ..., takes_late_masks: _Optional[bool] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("heartbeat_seconds", "protocol_minor")
    HEARTBEAT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_MINOR_FIELD_NUMBER: _ClassVar[int]
    heartbeat_seconds: float
    protocol_minor: int
    def __init__(self, heartbeat_seconds: _Optional[float] = ..., protocol_minor: _Optional[int] = ...) -> None: ...

class Refusal(_message.Message):
    __slots__ = ("reason", "message")
    class Reason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        REASON_UNSPECIFIED: _ClassVar[Refusal.Reason]
        REASON_PROTOCOL: _ClassVar[Refusal.Reason]
        REASON_WEIGHTS: _ClassVar[Refusal.Reason]
        REASON_WORKER_ID: _ClassVar[Refusal.Reason]
        REASON_GEOMETRY: _ClassVar[Refusal.Reason]
    REASON_UNSPECIFIED: Refusal.Reason
    REASON_PROTOCOL: Refusal.Reason
    REASON_WEIGHTS: Refusal.Reason
    REASON_WORKER_ID: Refusal.Reason
    REASON_GEOMETRY: Refusal.Reason
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    reason: Refusal.Reason
    message: str
    def __init__(self, reason: _Optional[_Union[Refusal.Reason, str]] = ..., message: _Optional[str] = ...) -> None: ...

class NewSlots(_message.Message):
    __slots__ = ("slot", "num_tokens", "num_prompt", "num_computed", "tokens", "temperature", "top_p", "min_p", "top_k", "repetition_penalty", "presence_penalty", "frequency_penalty", "seed", "branch", "num_biases", "bias_token", "bias", "bias_until", "bias_context")
    SLOT_FIELD_NUMBER: _ClassVar[int]
    NUM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_PROMPT_FIELD_NUMBER: _ClassVar[int]
    NUM_COMPUTED_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    TOP_P_FIELD_NUMBER: _ClassVar[int]
    MIN_P_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    REPETITION_PENALTY_FIELD_NUMBER: _ClassVar[int]
    PRESENCE_PENALTY_FIELD_NUMBER: _ClassVar[int]
    FREQUENCY_PENALTY_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    BRANCH_FIELD_NUMBER: _ClassVar[int]
    NUM_BIASES_FIELD_NUMBER: _ClassVar[int]
    BIAS_TOKEN_FIELD_NUMBER: _ClassVar[int]
    BIAS_FIELD_NUMBER: _ClassVar[int]
    BIAS_UNTIL_FIELD_NUMBER: _ClassVar[int]
    BIAS_CONTEXT_FIELD_NUMBER: _ClassVar[int]
    slot: bytes
    num_tokens: bytes
    num_prompt: bytes
    num_computed: bytes
    tokens: bytes
    temperature: bytes
    top_p: bytes
    min_p: bytes
    top_k: bytes
    repetition_penalty: bytes
    presence_penalty: bytes
    frequency_penalty: bytes
    seed: bytes
    branch: bytes
    num_biases: bytes
    bias_token: bytes
    bias: bytes
    bias_until: bytes
    bias_context: bytes
    def __init__(self, slot: _Optional[bytes] = ..., num_tokens: _Optional[bytes] = ..., num_prompt: _Optional[bytes] = ..., num_computed: _Optional[bytes] = ..., tokens: _Optional[bytes] = ..., temperature: _Optional[bytes] = ..., top_p: _Optional[bytes] = ..., min_p: _Optional[bytes] = ..., top_k: _Optional[bytes] = ..., repetition_penalty: _Optional[bytes] = ..., presence_penalty: _Optional[bytes] = ..., frequency_penalty: _Optional[bytes] = ..., seed: _Optional[bytes] = ..., branch: _Optional[bytes] = ..., num_biases: _Optional[bytes] = ..., bias_token: _Optional[bytes] = ..., bias: _Optional[bytes] = ..., bias_until: _Optional[bytes] = ..., bias_context: _Optional[bytes] = ...) -> None: ...

class TableGrowth(_message.Message):
    __slots__ = ("slot", "num_pages", "pages", "num_dropped")
    SLOT_FIELD_NUMBER: _ClassVar[int]
    NUM_PAGES_FIELD_NUMBER: _ClassVar[int]
    PAGES_FIELD_NUMBER: _ClassVar[int]
    NUM_DROPPED_FIELD_NUMBER: _ClassVar[int]
    slot: bytes
    num_pages: bytes
    pages: bytes
    num_dropped: bytes
    def __init__(self, slot: _Optional[bytes] = ..., num_pages: _Optional[bytes] = ..., pages: _Optional[bytes] = ..., num_dropped: _Optional[bytes] = ...) -> None: ...

class PageMoves(_message.Message):
    __slots__ = ("source", "target")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    source: bytes
    target: bytes
    def __init__(self, source: _Optional[bytes] = ..., target: _Optional[bytes] = ...) -> None: ...

class Forks(_message.Message):
    __slots__ = ("source", "target", "branch", "seed")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    BRANCH_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    source: bytes
    target: bytes
    branch: bytes
    seed: bytes
    def __init__(self, source: _Optional[bytes] = ..., target: _Optional[bytes] = ..., branch: _Optional[bytes] = ..., seed: _Optional[bytes] = ...) -> None: ...

class Rows(_message.Message):
    __slots__ = ("slot", "num_tokens", "num_samples", "sample_slot", "score_slot", "score_position", "num_best", "masked_row", "mask")
    SLOT_FIELD_NUMBER: _ClassVar[int]
    NUM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_SAMPLES_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_SLOT_FIELD_NUMBER: _ClassVar[int]
    SCORE_SLOT_FIELD_NUMBER: _ClassVar[int]
    SCORE_POSITION_FIELD_NUMBER: _ClassVar[int]
    NUM_BEST_FIELD_NUMBER: _ClassVar[int]
    MASKED_ROW_FIELD_NUMBER: _ClassVar[int]
    MASK_FIELD_NUMBER: _ClassVar[int]
    slot: bytes
    num_tokens: bytes
    num_samples: bytes
    sample_slot: bytes
    score_slot: bytes
    score_position: bytes
    num_best: int
    masked_row: bytes
    mask: bytes
    def __init__(self, slot: _Optional[bytes] = ..., num_tokens: _Optional[bytes] = ..., num_samples: _Optional[bytes] = ..., sample_slot: _Optional[bytes] = ..., score_slot: _Optional[bytes] = ..., score_position: _Optional[bytes] = ..., num_best: _Optional[int] = ..., masked_row: _Optional[bytes] = ..., mask: _Optional[bytes] = ...) -> None: ...

class StepMasks(_message.Message):
    __slots__ = ("step", "mask")
    STEP_FIELD_NUMBER: _ClassVar[int]
    MASK_FIELD_NUMBER: _ClassVar[int]
    step: int
    mask: bytes
    def __init__(self, step: _Optional[int] = ..., mask: _Optional[bytes] = ...) -> None: ...

class StepPlan(_message.Message):
    __slots__ = ("step", "full", "freed_slot", "swap_out", "swap_in", "copy", "zero", "new_slots", "growth", "forks", "rows")
    STEP_FIELD_NUMBER: _ClassVar[int]
    FULL_FIELD_NUMBER: _ClassVar[int]
    FREED_SLOT_FIELD_NUMBER: _ClassVar[int]
    SWAP_OUT_FIELD_NUMBER: _ClassVar[int]
    SWAP_IN_FIELD_NUMBER: _ClassVar[int]
    COPY_FIELD_NUMBER: _ClassVar[int]
    ZERO_FIELD_NUMBER: _ClassVar[int]
    NEW_SLOTS_FIELD_NUMBER: _ClassVar[int]
    GROWTH_FIELD_NUMBER: _ClassVar[int]
    FORKS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    step: int
    full: bool
    freed_slot: bytes
    swap_out: PageMoves
    swap_in: PageMoves
    copy: PageMoves
    zero: bytes
    new_slots: NewSlots
    growth: TableGrowth
    forks: Forks
    rows: Rows
    def __init__(self, step: _Optional[int] = ..., full: _Optional[bool] = ..., freed_slot: _Optional[bytes] = ..., swap_out: _Optional[_Union[PageMoves, _Mapping]] = ..., swap_in: _Optional[_Union[PageMoves, _Mapping]] = ..., copy: _Optional[_Union[PageMoves, _Mapping]] = ..., zero: _Optional[bytes] = ..., new_slots: _Optional[_Union[NewSlots, _Mapping]] = ..., growth: _Optional[_Union[TableGrowth, _Mapping]] = ..., forks: _Optional[_Union[Forks, _Mapping]] = ..., rows: _Optional[_Union[Rows, _Mapping]] = ...) -> None: ...

class StepResult(_message.Message):
    __slots__ = ("step", "token", "execute_seconds", "swapped_bytes", "swap_seconds", "logprobs")
    STEP_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    EXECUTE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    SWAPPED_BYTES_FIELD_NUMBER: _ClassVar[int]
    SWAP_SECONDS_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    step: int
    token: bytes
    execute_seconds: float
    swapped_bytes: int
    swap_seconds: float
    logprobs: bytes
    def __init__(self, step: _Optional[int] = ..., token: _Optional[bytes] = ..., execute_seconds: _Optional[float] = ..., swapped_bytes: _Optional[int] = ..., swap_seconds: _Optional[float] = ..., logprobs: _Optional[bytes] = ...) -> None: ...

class Nack(_message.Message):
    __slots__ = ("step", "reason", "message", "last_step")
    class Reason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        REASON_UNSPECIFIED: _ClassVar[Nack.Reason]
        REASON_OUT_OF_SEQUENCE: _ClassVar[Nack.Reason]
        REASON_INVALID: _ClassVar[Nack.Reason]
        REASON_FAILED: _ClassVar[Nack.Reason]
        REASON_OUT_OF_MEMORY: _ClassVar[Nack.Reason]
    REASON_UNSPECIFIED: Nack.Reason
    REASON_OUT_OF_SEQUENCE: Nack.Reason
    REASON_INVALID: Nack.Reason
    REASON_FAILED: Nack.Reason
    REASON_OUT_OF_MEMORY: Nack.Reason
    STEP_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    LAST_STEP_FIELD_NUMBER: _ClassVar[int]
    step: int
    reason: Nack.Reason
    message: str
    last_step: int
    def __init__(self, step: _Optional[int] = ..., reason: _Optional[_Union[Nack.Reason, str]] = ..., message: _Optional[str] = ..., last_step: _Optional[int] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ("phase", "last_step", "device_memory_used", "device_memory_total")
    class Phase(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        PHASE_UNSPECIFIED: _ClassVar[Heartbeat.Phase]
        PHASE_LOADING: _ClassVar[Heartbeat.Phase]
        PHASE_WARMING: _ClassVar[Heartbeat.Phase]
        PHASE_IDLE: _ClassVar[Heartbeat.Phase]
        PHASE_STEP: _ClassVar[Heartbeat.Phase]
    PHASE_UNSPECIFIED: Heartbeat.Phase
    PHASE_LOADING: Heartbeat.Phase
    PHASE_WARMING: Heartbeat.Phase
    PHASE_IDLE: Heartbeat.Phase
    PHASE_STEP: Heartbeat.Phase
    PHASE_FIELD_NUMBER: _ClassVar[int]
    LAST_STEP_FIELD_NUMBER: _ClassVar[int]
    DEVICE_MEMORY_USED_FIELD_NUMBER: _ClassVar[int]
    DEVICE_MEMORY_TOTAL_FIELD_NUMBER: _ClassVar[int]
    phase: Heartbeat.Phase
    last_step: int
    device_memory_used: int
    device_memory_total: int
    def __init__(self, phase: _Optional[_Union[Heartbeat.Phase, str]] = ..., last_step: _Optional[int] = ..., device_memory_used: _Optional[int] = ..., device_memory_total: _Optional[int] = ...) -> None: ...

class Goodbye(_message.Message):
    __slots__ = ("message",)
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    message: str
    def __init__(self, message: _Optional[str] = ...) -> None: ...
