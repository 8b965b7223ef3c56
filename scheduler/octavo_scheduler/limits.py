"""Every limit on what a client or a worker may send, in one table. Checked before anything is copied or queued."""

GRPC_MESSAGE_BYTES = 16 << 20
GRPC_METADATA_BYTES = 16 << 10
ZMQ_MESSAGE_BYTES = 64 << 20

MAX_ANSWERS = 16
MAX_LOGPROBS = 20
MAX_STOPS = 16
MAX_STOP_BYTES = 256
MAX_STOP_TOKEN_IDS = 64
MAX_MESSAGES = 1024
MAX_PROMPT_BYTES = 8 << 20
MAX_REQUEST_ID_BYTES = 128
MAX_TENANT_BYTES = 128
MAX_REQUEST_SECONDS = 3600.0

TEMPERATURE = (0.0, 100.0)
TOP_K = (0, 1 << 20)
MIN_P = (0.0, 1.0)
REPETITION_PENALTY = (0.01, 100.0)
PRESENCE_PENALTY = (-2.0, 2.0)
FREQUENCY_PENALTY = (-2.0, 2.0)
"""Closed ranges. top_p lies in (0, 1]."""
