from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class WorkerState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    WORKER_STATE_UNSPECIFIED: _ClassVar[WorkerState]
    WORKER_STATE_JOINING: _ClassVar[WorkerState]
    WORKER_STATE_READY: _ClassVar[WorkerState]
    WORKER_STATE_DRAINING: _ClassVar[WorkerState]
WORKER_STATE_UNSPECIFIED: WorkerState
WORKER_STATE_JOINING: WorkerState
WORKER_STATE_READY: WorkerState
WORKER_STATE_DRAINING: WorkerState

class GetStatusRequest(_message.Message):
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
    __slots__ = ("worker_id", "state", "page_size", "device", "host", "running", "swapped", "plans_in_flight", "step", "kernels", "slot_utilisation", "saturated_slot_utilisation")
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
    def __init__(self, worker_id: _Optional[str] = ..., state: _Optional[_Union[WorkerState, str]] = ..., page_size: _Optional[int] = ..., device: _Optional[_Union[PageCounts, _Mapping]] = ..., host: _Optional[_Union[PageCounts, _Mapping]] = ..., running: _Optional[int] = ..., swapped: _Optional[int] = ..., plans_in_flight: _Optional[int] = ..., step: _Optional[int] = ..., kernels: _Optional[str] = ..., slot_utilisation: _Optional[float] = ..., saturated_slot_utilisation: _Optional[float] = ...) -> None: ...

class Counters(_message.Message):
    __slots__ = ("accepted", "refused", "ended", "cancelled", "prompt_tokens", "generated_tokens", "drops", "swaps", "stale_messages", "bad_messages", "workers_lost", "audit_violations")
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
    def __init__(self, accepted: _Optional[int] = ..., refused: _Optional[int] = ..., ended: _Optional[int] = ..., cancelled: _Optional[int] = ..., prompt_tokens: _Optional[int] = ..., generated_tokens: _Optional[int] = ..., drops: _Optional[int] = ..., swaps: _Optional[int] = ..., stale_messages: _Optional[int] = ..., bad_messages: _Optional[int] = ..., workers_lost: _Optional[int] = ..., audit_violations: _Optional[int] = ...) -> None: ...

class GetStatusResponse(_message.Message):
    __slots__ = ("model", "uptime_seconds", "live_requests", "waiting", "workers", "counters")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    UPTIME_SECONDS_FIELD_NUMBER: _ClassVar[int]
    LIVE_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    COUNTERS_FIELD_NUMBER: _ClassVar[int]
    model: str
    uptime_seconds: float
    live_requests: int
    waiting: int
    workers: _containers.RepeatedCompositeFieldContainer[WorkerStatus]
    counters: Counters
    def __init__(self, model: _Optional[str] = ..., uptime_seconds: _Optional[float] = ..., live_requests: _Optional[int] = ..., waiting: _Optional[int] = ..., workers: _Optional[_Iterable[_Union[WorkerStatus, _Mapping]]] = ..., counters: _Optional[_Union[Counters, _Mapping]] = ...) -> None: ...
