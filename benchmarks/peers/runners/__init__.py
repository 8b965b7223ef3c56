"""Programs that run one engine each. They speak the conversation of `protocol`, in that engine's own environment."""
