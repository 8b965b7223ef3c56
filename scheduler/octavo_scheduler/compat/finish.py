"""Why an answer ended, in the word that OpenAI's API and all that follow it have for it."""

from octavo_scheduler.core.request import FinishReason

FINISH_REASONS = {FinishReason.STOP: "stop", FinishReason.LENGTH: "length", FinishReason.CANCELLED: "abort"}
