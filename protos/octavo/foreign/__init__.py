"""Generated code of schemas that belong to others, so that their clients find what they call; see the .proto files."""
