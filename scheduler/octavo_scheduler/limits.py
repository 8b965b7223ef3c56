"""Every limit on what a client or a worker may send, in one table. Checked before anything is copied or queued."""

GRPC_MESSAGE_BYTES = 16 << 20
GRPC_METADATA_BYTES = 16 << 10
GRPC_PENDING_CALLS = 1 << 16
"""Calls that have come and that no servicer has looked at yet."""
HTTP_BODY_BYTES = 1 << 20
HTTP_CONNECTIONS = 1024
"""Connections and requests by HTTP; more get status 503."""
ZMQ_MESSAGE_BYTES = 64 << 20

MAX_FRONTENDS = 64
"""Front processes of one scheduler."""

MAX_WORKER_ID_BYTES = 128
MAX_WORKER_WORDS = 1024
"""Characters of a worker's own words, which are logged."""
MAX_WORKER_PAGES = 1 << 21
"""Of one tier of one worker."""
MAX_WORKER_SLOTS = 1 << 16
"""Slots travel as uint16."""
MAX_CONTEXT_TOKENS = 1 << 26
MAX_VOCABULARY = (1 << 31) - 1
"""Token ids travel as int32."""

MAX_ANSWERS = 16
MAX_STOPS = 16
MAX_STOP_BYTES = 256
MAX_STOP_TOKEN_IDS = 64
MAX_LOGPROBS = 20
MAX_LOGIT_BIASES = 1024
MAX_BAD_WORDS = 128
MAX_BAD_WORD_BYTES = 256
MAX_BIASES = 2048
"""Of a request: its logit_bias, the tokens that end an answer, where there is a min_tokens, and all tokens of bad words."""
MAX_MESSAGES = 1024
MAX_CHAT_LITERALS = 4096
"""Control tokens written out in the messages of one chat: each is tokenised by itself."""
MAX_PROMPT_BYTES = 8 << 20
MAX_RENDERED_CHARACTERS = 16 << 20
"""What a chat template may make of messages."""
MAX_TEMPLATE_STEPS = 1 << 21
"""Items of loops in one rendering; a call counts as 16, and more with long arguments."""
MAX_REQUEST_ID_BYTES = 128
MAX_TENANT_BYTES = 128
MAX_PIN_NAME_BYTES = 256
MAX_PINS = 256
MAX_PINNED_TOKENS = 1 << 20
"""Of all pins together: their keys are computed anew for every new pin, worker and list, while the streams wait."""
MAX_EXPLANATIONS = 16
"""Requests of one name that are explained at once, the oldest ones: clients choose names, and all may choose the same."""
MAX_WATCHERS = 64
"""Of the status, at once."""
WATCH_SECONDS = (0.1, 3600.0)
"""From one status to the next; closed."""
MAX_KV_SUBSCRIBERS = 16
"""Each is told all changes of the prefix caches, which takes a look at all pages now and then."""
MAX_ECHO = 64
"""Characters of a client's own words in the sentence that refuses them."""
MAX_REQUEST_SECONDS = 3600.0

STREAM_BUFFER_BYTES = 64 << 10
"""What may wait for one reader of a stream: half of it in a message that is on its way, half in tokens that came since."""
MAX_STREAM_INTERVAL = 64
"""Tokens of an answer that are held back because the client wants longer messages."""
STALLED_SECONDS = 30.0
"""So long a reader may take for one message; then it is cut off."""
KEPT_ANSWER_SECONDS = 60.0
"""So long an answer is known by the name of its request after its last reader has gone."""
MAX_KEPT_ANSWERS = 4096
MAX_KEPT_TOKENS = 1 << 20
"""Of all answers together that have no reader."""

TEMPERATURE = (0.0, 100.0)
TOP_K = (0, 1 << 20)
MIN_P = (0.0, 1.0)
REPETITION_PENALTY = (1 / 128, 128.0)
PRESENCE_PENALTY = (-2.0, 2.0)
FREQUENCY_PENALTY = (-2.0, 2.0)
LOGIT_BIAS = (-100.0, 100.0)
"""Closed ranges, whose ends float32 holds exactly: values travel in it. top_p lies in (0, 1]."""

MAX_CONSTRAINT_BYTES = 64 << 10
MAX_CHOICES = 1024
MAX_LEXER_STATES = 50_000
"""Of one constrained answer: one or two KB each."""
MAX_GRAMMAR_ERROR = 400
"""Characters of what is wrong with a constraint."""
TRIAL_SECONDS = 5.0
"""In which a constraint has to be compiled, in a process of its own."""
MATCHING_SECONDS = 20.0
"""In which the masks of a step have to be there; it takes milliseconds."""
HELPER_START_SECONDS = 60.0
MATCHING_MEMORY_BYTES = 4 << 30
"""Address space of a process that compiles or follows constraints."""
