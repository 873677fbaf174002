"""Judgements of what agents do: what a score is, and how it gets into the log of a run."""

from __future__ import annotations

from lib.evals.score import Score, ScoreSource, as_score, score_event, score_of

__all__ = ["Score", "ScoreSource", "as_score", "score_event", "score_of"]
