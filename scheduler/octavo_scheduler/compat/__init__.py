"""Services that other people's clients call, each a thin one over the front: their fields in, their messages out."""
