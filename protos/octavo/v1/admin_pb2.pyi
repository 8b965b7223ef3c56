from octavo.v1 import inference_pb2 as _inference_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class BranchState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    BRANCH_STATE_UNSPECIFIED: _ClassVar[BranchState]
    BRANCH_STATE_WAITING: _ClassVar[BranchState]
    BRANCH_STATE_RUNNING: _ClassVar[BranchState]
    BRANCH_STATE_SWAPPED: _ClassVar[BranchState]

class PageState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PAGE_STATE_UNSPECIFIED: _ClassVar[PageState]
    PAGE_STATE_FREE: _ClassVar[PageState]
    PAGE_STATE_CACHED: _ClassVar[PageState]
    PAGE_STATE_HELD: _ClassVar[PageState]
    PAGE_STATE_SHARED: _ClassVar[PageState]
    PAGE_STATE_FENCED: _ClassVar[PageState]
    PAGE_STATE_SWAPPING: _ClassVar[PageState]
    PAGE_STATE_QUARANTINED: _ClassVar[PageState]

class WorkerState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    WORKER_STATE_UNSPECIFIED: _ClassVar[WorkerState]
    WORKER_STATE_JOINING: _ClassVar[WorkerState]
    WORKER_STATE_READY: _ClassVar[WorkerState]
    WORKER_STATE_DRAINING: _ClassVar[WorkerState]
BRANCH_STATE_UNSPECIFIED: BranchState
BRANCH_STATE_WAITING: BranchState
BRANCH_STATE_RUNNING: BranchState
BRANCH_STATE_SWAPPED: BranchState
PAGE_STATE_UNSPECIFIED: PageState
PAGE_STATE_FREE: PageState
PAGE_STATE_CACHED: PageState
PAGE_STATE_HELD: PageState
PAGE_STATE_SHARED: PageState
PAGE_STATE_FENCED: PageState
PAGE_STATE_SWAPPING: PageState
PAGE_STATE_QUARANTINED: PageState
WORKER_STATE_UNSPECIFIED: WorkerState
WORKER_STATE_JOINING: WorkerState
WORKER_STATE_READY: WorkerState
WORKER_STATE_DRAINING: WorkerState

class GetStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WatchStatusRequest(_message.Message):
    __slots__ = ("interval_seconds",)
    INTERVAL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    interval_seconds: float
    def __init__(self, interval_seconds: _Optional[float] = ...) -> None: ...

class WatchStatusResponse(_message.Message):
    __slots__ = ("status",)
    STATUS_FIELD_NUMBER: _ClassVar[int]
    status: GetStatusResponse
    def __init__(self, status: _Optional[_Union[GetStatusResponse, _Mapping]] = ...) -> None: ...

class ListRequestsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListRequestsResponse(_message.Message):
    __slots__ = ("requests",)
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    requests: _containers.RepeatedCompositeFieldContainer[RequestStatus]
    def __init__(self, requests: _Optional[_Iterable[_Union[RequestStatus, _Mapping]]] = ...) -> None: ...

class RequestStatus(_message.Message):
    __slots__ = ("id", "request_id", "tenant", "priority", "age_seconds", "prompt_tokens", "preemptions", "branches")
    ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    AGE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PREEMPTIONS_FIELD_NUMBER: _ClassVar[int]
    BRANCHES_FIELD_NUMBER: _ClassVar[int]
    id: str
    request_id: str
    tenant: str
    priority: int
    age_seconds: float
    prompt_tokens: int
    preemptions: int
    branches: _containers.RepeatedCompositeFieldContainer[BranchStatus]
    def __init__(self, id: _Optional[str] = ..., request_id: _Optional[str] = ..., tenant: _Optional[str] = ..., priority: _Optional[int] = ..., age_seconds: _Optional[float] = ..., prompt_tokens: _Optional[int] = ..., preemptions: _Optional[int] = ..., branches: _Optional[_Iterable[_Union[BranchStatus, _Mapping]]] = ...) -> None: ...

class BranchStatus(_message.Message):
    __slots__ = ("branch", "state", "worker_id", "slot", "answer_tokens", "computed_tokens", "device_pages", "host_pages")
    BRANCH_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    ANSWER_TOKENS_FIELD_NUMBER: _ClassVar[int]
    COMPUTED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    DEVICE_PAGES_FIELD_NUMBER: _ClassVar[int]
    HOST_PAGES_FIELD_NUMBER: _ClassVar[int]
    branch: int
    state: BranchState
    worker_id: str
    slot: int
    answer_tokens: int
    computed_tokens: int
    device_pages: int
    host_pages: int
    def __init__(self, branch: _Optional[int] = ..., state: _Optional[_Union[BranchState, str]] = ..., worker_id: _Optional[str] = ..., slot: _Optional[int] = ..., answer_tokens: _Optional[int] = ..., computed_tokens: _Optional[int] = ..., device_pages: _Optional[int] = ..., host_pages: _Optional[int] = ...) -> None: ...

class ExplainRequest(_message.Message):
    __slots__ = ("request_id",)
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    def __init__(self, request_id: _Optional[str] = ...) -> None: ...

class ExplainResponse(_message.Message):
    __slots__ = ("explanations",)
    EXPLANATIONS_FIELD_NUMBER: _ClassVar[int]
    explanations: _containers.RepeatedCompositeFieldContainer[Explanation]
    def __init__(self, explanations: _Optional[_Iterable[_Union[Explanation, _Mapping]]] = ...) -> None: ...

class Explanation(_message.Message):
    __slots__ = ("id", "text")
    ID_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    id: str
    text: str
    def __init__(self, id: _Optional[str] = ..., text: _Optional[str] = ...) -> None: ...

class AbortRequest(_message.Message):
    __slots__ = ("request_ids", "tenant")
    REQUEST_IDS_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    request_ids: _containers.RepeatedScalarFieldContainer[str]
    tenant: str
    def __init__(self, request_ids: _Optional[_Iterable[str]] = ..., tenant: _Optional[str] = ...) -> None: ...

class AbortResponse(_message.Message):
    __slots__ = ("ids",)
    IDS_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, ids: _Optional[_Iterable[str]] = ...) -> None: ...

class GetPageMapRequest(_message.Message):
    __slots__ = ("worker_id", "with_holders")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    WITH_HOLDERS_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    with_holders: bool
    def __init__(self, worker_id: _Optional[str] = ..., with_holders: _Optional[bool] = ...) -> None: ...

class GetPageMapResponse(_message.Message):
    __slots__ = ("workers",)
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    workers: _containers.RepeatedCompositeFieldContainer[WorkerPageMap]
    def __init__(self, workers: _Optional[_Iterable[_Union[WorkerPageMap, _Mapping]]] = ...) -> None: ...

class WorkerPageMap(_message.Message):
    __slots__ = ("worker_id", "page_size", "device", "host")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    page_size: int
    device: PageMap
    host: PageMap
    def __init__(self, worker_id: _Optional[str] = ..., page_size: _Optional[int] = ..., device: _Optional[_Union[PageMap, _Mapping]] = ..., host: _Optional[_Union[PageMap, _Mapping]] = ...) -> None: ...

class PageMap(_message.Message):
    __slots__ = ("states", "num_pages", "holders")
    STATES_FIELD_NUMBER: _ClassVar[int]
    NUM_PAGES_FIELD_NUMBER: _ClassVar[int]
    HOLDERS_FIELD_NUMBER: _ClassVar[int]
    states: _containers.RepeatedScalarFieldContainer[PageState]
    num_pages: _containers.RepeatedScalarFieldContainer[int]
    holders: _containers.RepeatedCompositeFieldContainer[PageHolder]
    def __init__(self, states: _Optional[_Iterable[_Union[PageState, str]]] = ..., num_pages: _Optional[_Iterable[int]] = ..., holders: _Optional[_Iterable[_Union[PageHolder, _Mapping]]] = ...) -> None: ...

class PageHolder(_message.Message):
    __slots__ = ("id", "request_id", "branch", "slot", "pages")
    ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    BRANCH_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    PAGES_FIELD_NUMBER: _ClassVar[int]
    id: str
    request_id: str
    branch: int
    slot: int
    pages: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, id: _Optional[str] = ..., request_id: _Optional[str] = ..., branch: _Optional[int] = ..., slot: _Optional[int] = ..., pages: _Optional[_Iterable[int]] = ...) -> None: ...

class FlushRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class FlushResponse(_message.Message):
    __slots__ = ("freed_pages",)
    FREED_PAGES_FIELD_NUMBER: _ClassVar[int]
    freed_pages: int
    def __init__(self, freed_pages: _Optional[int] = ...) -> None: ...

class PinRequest(_message.Message):
    __slots__ = ("name", "salt", "prompt")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SALT_FIELD_NUMBER: _ClassVar[int]
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    name: str
    salt: str
    prompt: _inference_pb2.Prompt
    def __init__(self, name: _Optional[str] = ..., salt: _Optional[str] = ..., prompt: _Optional[_Union[_inference_pb2.Prompt, _Mapping]] = ...) -> None: ...

class PinResponse(_message.Message):
    __slots__ = ("tokens",)
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    tokens: int
    def __init__(self, tokens: _Optional[int] = ...) -> None: ...

class UnpinRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class UnpinResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListPinsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListPinsResponse(_message.Message):
    __slots__ = ("pins",)
    PINS_FIELD_NUMBER: _ClassVar[int]
    pins: _containers.RepeatedCompositeFieldContainer[PinStatus]
    def __init__(self, pins: _Optional[_Iterable[_Union[PinStatus, _Mapping]]] = ...) -> None: ...

class PinStatus(_message.Message):
    __slots__ = ("name", "salt", "tokens", "pages")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SALT_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    PAGES_FIELD_NUMBER: _ClassVar[int]
    name: str
    salt: str
    tokens: int
    pages: int
    def __init__(self, name: _Optional[str] = ..., salt: _Optional[str] = ..., tokens: _Optional[int] = ..., pages: _Optional[int] = ...) -> None: ...

class DrainWorkerRequest(_message.Message):
    __slots__ = ("worker_id",)
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    def __init__(self, worker_id: _Optional[str] = ...) -> None: ...

class DrainWorkerResponse(_message.Message):
    __slots__ = ("remaining",)
    REMAINING_FIELD_NUMBER: _ClassVar[int]
    remaining: int
    def __init__(self, remaining: _Optional[int] = ...) -> None: ...

class ResumeWorkerRequest(_message.Message):
    __slots__ = ("worker_id",)
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    def __init__(self, worker_id: _Optional[str] = ...) -> None: ...

class ResumeWorkerResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PageCounts(_message.Message):
    __slots__ = ("total", "free", "cached", "held", "fenced", "quarantined", "peak_held")
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    FREE_FIELD_NUMBER: _ClassVar[int]
    CACHED_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    FENCED_FIELD_NUMBER: _ClassVar[int]
    QUARANTINED_FIELD_NUMBER: _ClassVar[int]
    PEAK_HELD_FIELD_NUMBER: _ClassVar[int]
    total: int
    free: int
    cached: int
    held: int
    fenced: int
    quarantined: int
    peak_held: int
    def __init__(self, total: _Optional[int] = ..., free: _Optional[int] = ..., cached: _Optional[int] = ..., held: _Optional[int] = ..., fenced: _Optional[int] = ..., quarantined: _Optional[int] = ..., peak_held: _Optional[int] = ...) -> None: ...

class WorkerStatus(_message.Message):
    __slots__ = ("worker_id", "state", "page_size", "device", "host", "running", "swapped", "plans_in_flight", "step", "kernels", "slot_utilisation", "saturated_slot_utilisation", "silent_seconds", "step_lag_seconds", "plan_seconds", "answer_seconds", "execute_seconds", "device_memory_used", "device_memory_total")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    SWAPPED_FIELD_NUMBER: _ClassVar[int]
    PLANS_IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    KERNELS_FIELD_NUMBER: _ClassVar[int]
    SLOT_UTILISATION_FIELD_NUMBER: _ClassVar[int]
    SATURATED_SLOT_UTILISATION_FIELD_NUMBER: _ClassVar[int]
    SILENT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    STEP_LAG_SECONDS_FIELD_NUMBER: _ClassVar[int]
    PLAN_SECONDS_FIELD_NUMBER: _ClassVar[int]
    ANSWER_SECONDS_FIELD_NUMBER: _ClassVar[int]
    EXECUTE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    DEVICE_MEMORY_USED_FIELD_NUMBER: _ClassVar[int]
    DEVICE_MEMORY_TOTAL_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    state: WorkerState
    page_size: int
    device: PageCounts
    host: PageCounts
    running: int
    swapped: int
    plans_in_flight: int
    step: int
    kernels: str
    slot_utilisation: float
    saturated_slot_utilisation: float
    silent_seconds: float
    step_lag_seconds: float
    plan_seconds: Histogram
    answer_seconds: Histogram
    execute_seconds: Histogram
    device_memory_used: int
    device_memory_total: int
    def __init__(self, worker_id: _Optional[str] = ..., state: _Optional[_Union[WorkerState, str]] = ..., page_size: _Optional[int] = ..., device: _Optional[_Union[PageCounts, _Mapping]] = ..., host: _Optional[_Union[PageCounts, _Mapping]] = ..., running: _Optional[int] = ..., swapped: _Optional[int] = ..., plans_in_flight: _Optional[int] = ..., step: _Optional[int] = ..., kernels: _Optional[str] = ..., slot_utilisation: _Optional[float] = ..., saturated_slot_utilisation: _Optional[float] = ..., silent_seconds: _Optional[float] = ..., step_lag_seconds: _Optional[float] = ..., plan_seconds: _Optional[_Union[Histogram, _Mapping]] = ..., answer_seconds: _Optional[_Union[Histogram, _Mapping]] = ..., execute_seconds: _Optional[_Union[Histogram, _Mapping]] = ..., device_memory_used: _Optional[int] = ..., device_memory_total: _Optional[int] = ...) -> None: ...

class Histogram(_message.Message):
    __slots__ = ("bounds", "counts", "sum")
    BOUNDS_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    SUM_FIELD_NUMBER: _ClassVar[int]
    bounds: _containers.RepeatedScalarFieldContainer[float]
    counts: _containers.RepeatedScalarFieldContainer[int]
    sum: float
    def __init__(self, bounds: _Optional[_Iterable[float]] = ..., counts: _Optional[_Iterable[int]] = ..., sum: _Optional[float] = ...) -> None: ...

class Service(_message.Message):
    __slots__ = ("first_token_seconds", "inter_token_seconds", "queue_seconds", "prefill_seconds", "decode_seconds", "total_seconds", "token_seconds", "prompt_tokens", "answer_tokens", "step_tokens", "outcomes", "streams_cut_off", "prefix_queries", "prefix_hits")
    FIRST_TOKEN_SECONDS_FIELD_NUMBER: _ClassVar[int]
    INTER_TOKEN_SECONDS_FIELD_NUMBER: _ClassVar[int]
    QUEUE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    PREFILL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    DECODE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_SECONDS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    ANSWER_TOKENS_FIELD_NUMBER: _ClassVar[int]
    STEP_TOKENS_FIELD_NUMBER: _ClassVar[int]
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    STREAMS_CUT_OFF_FIELD_NUMBER: _ClassVar[int]
    PREFIX_QUERIES_FIELD_NUMBER: _ClassVar[int]
    PREFIX_HITS_FIELD_NUMBER: _ClassVar[int]
    first_token_seconds: Histogram
    inter_token_seconds: Histogram
    queue_seconds: Histogram
    prefill_seconds: Histogram
    decode_seconds: Histogram
    total_seconds: Histogram
    token_seconds: Histogram
    prompt_tokens: Histogram
    answer_tokens: Histogram
    step_tokens: Histogram
    outcomes: _containers.RepeatedCompositeFieldContainer[OutcomeCount]
    streams_cut_off: int
    prefix_queries: int
    prefix_hits: int
    def __init__(self, first_token_seconds: _Optional[_Union[Histogram, _Mapping]] = ..., inter_token_seconds: _Optional[_Union[Histogram, _Mapping]] = ..., queue_seconds: _Optional[_Union[Histogram, _Mapping]] = ..., prefill_seconds: _Optional[_Union[Histogram, _Mapping]] = ..., decode_seconds: _Optional[_Union[Histogram, _Mapping]] = ..., total_seconds: _Optional[_Union[Histogram, _Mapping]] = ..., token_seconds: _Optional[_Union[Histogram, _Mapping]] = ..., prompt_tokens: _Optional[_Union[Histogram, _Mapping]] = ..., answer_tokens: _Optional[_Union[Histogram, _Mapping]] = ..., step_tokens: _Optional[_Union[Histogram, _Mapping]] = ..., outcomes: _Optional[_Iterable[_Union[OutcomeCount, _Mapping]]] = ..., streams_cut_off: _Optional[int] = ..., prefix_queries: _Optional[int] = ..., prefix_hits: _Optional[int] = ...) -> None: ...

class OutcomeCount(_message.Message):
    __slots__ = ("outcome", "count")
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    outcome: str
    count: int
    def __init__(self, outcome: _Optional[str] = ..., count: _Optional[int] = ...) -> None: ...

class QueueDepth(_message.Message):
    __slots__ = ("priority", "waiting")
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    priority: int
    waiting: int
    def __init__(self, priority: _Optional[int] = ..., waiting: _Optional[int] = ...) -> None: ...

class Counters(_message.Message):
    __slots__ = ("accepted", "refused", "ended", "cancelled", "prompt_tokens", "generated_tokens", "drops", "swaps", "stale_messages", "bad_messages", "workers_lost", "audit_violations", "workers_joined", "swapped_out_bytes", "swapped_in_bytes", "swap_seconds", "frontends_lost")
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    GENERATED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    DROPS_FIELD_NUMBER: _ClassVar[int]
    SWAPS_FIELD_NUMBER: _ClassVar[int]
    STALE_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    BAD_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    WORKERS_LOST_FIELD_NUMBER: _ClassVar[int]
    AUDIT_VIOLATIONS_FIELD_NUMBER: _ClassVar[int]
    WORKERS_JOINED_FIELD_NUMBER: _ClassVar[int]
    SWAPPED_OUT_BYTES_FIELD_NUMBER: _ClassVar[int]
    SWAPPED_IN_BYTES_FIELD_NUMBER: _ClassVar[int]
    SWAP_SECONDS_FIELD_NUMBER: _ClassVar[int]
    FRONTENDS_LOST_FIELD_NUMBER: _ClassVar[int]
    accepted: int
    refused: int
    ended: int
    cancelled: int
    prompt_tokens: int
    generated_tokens: int
    drops: int
    swaps: int
    stale_messages: int
    bad_messages: int
    workers_lost: int
    audit_violations: int
    workers_joined: int
    swapped_out_bytes: int
    swapped_in_bytes: int
    swap_seconds: float
    frontends_lost: int
    def __init__(self, accepted: _Optional[int] = ..., refused: _Optional[int] = ..., ended: _Optional[int] = ..., cancelled: _Optional[int] = ..., prompt_tokens: _Optional[int] = ..., generated_tokens: _Optional[int] = ..., drops: _Optional[int] = ..., swaps: _Optional[int] = ..., stale_messages: _Optional[int] = ..., bad_messages: _Optional[int] = ..., workers_lost: _Optional[int] = ..., audit_violations: _Optional[int] = ..., workers_joined: _Optional[int] = ..., swapped_out_bytes: _Optional[int] = ..., swapped_in_bytes: _Optional[int] = ..., swap_seconds: _Optional[float] = ..., frontends_lost: _Optional[int] = ...) -> None: ...

class GetStatusResponse(_message.Message):
    __slots__ = ("model", "uptime_seconds", "live_requests", "waiting", "workers", "counters", "service", "queue")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    UPTIME_SECONDS_FIELD_NUMBER: _ClassVar[int]
    LIVE_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    COUNTERS_FIELD_NUMBER: _ClassVar[int]
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    model: str
    uptime_seconds: float
    live_requests: int
    waiting: int
    workers: _containers.RepeatedCompositeFieldContainer[WorkerStatus]
    counters: Counters
    service: Service
    queue: _containers.RepeatedCompositeFieldContainer[QueueDepth]
    def __init__(self, model: _Optional[str] = ..., uptime_seconds: _Optional[float] = ..., live_requests: _Optional[int] = ..., waiting: _Optional[int] = ..., workers: _Optional[_Iterable[_Union[WorkerStatus, _Mapping]]] = ..., counters: _Optional[_Union[Counters, _Mapping]] = ..., service: _Optional[_Union[Service, _Mapping]] = ..., queue: _Optional[_Iterable[_Union[QueueDepth, _Mapping]]] = ...) -> None: ...
