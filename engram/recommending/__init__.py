"""Which method, pictures and number of steps suit a limit in bytes, from what was measured."""

from engram.recommending.measured import MeasuredRun, measured_runs, picture_bytes
from engram.recommending.recommendation import Choice, Recommendation, recommend

__all__ = ["Choice", "MeasuredRun", "Recommendation", "measured_runs", "picture_bytes", "recommend"]
