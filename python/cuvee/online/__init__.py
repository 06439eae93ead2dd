"""Weights that learn while a model trains: reports -> reward -> bandit -> an update of the plan, kept and replayed."""

from .decision import Decision
from .mixer import OnlineMixer
from .setup import Online

__all__ = ["Decision", "Online", "OnlineMixer"]
