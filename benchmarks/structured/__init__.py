"""Answers that follow a JSON schema: are they valid, how fast are they, are they the same whatever happens meanwhile?"""
