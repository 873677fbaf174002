"""Scores of runs and spans, and their events in the log."""

from __future__ import annotations

from lib.evals.score import Score, ScoreSource, as_score, score_event, score_of

__all__ = ["Score", "ScoreSource", "as_score", "score_event", "score_of"]
