"""Finds secrets and personal data in a text: patterns with checks, in linear time. Pure.

What patterns cannot know they do not find: names of people, postal addresses, a password without
anything around it. `PresidioDetector` brings a model for such things.
"""

from __future__ import annotations

from typing import Final

from lib.privacy.detect.card import CardDetector
from lib.privacy.detect.email import EmailDetector
from lib.privacy.detect.finding import Detector, Finding, resolve
from lib.privacy.detect.iban import IBANDetector
from lib.privacy.detect.phone import PhoneDetector
from lib.privacy.detect.presidio import PresidioDetector
from lib.privacy.detect.search import find
from lib.privacy.detect.secret import SecretDetector

DEFAULT: Final[tuple[Detector, ...]] = (
    SecretDetector(),
    CardDetector(),
    IBANDetector(),
    EmailDetector(),
    PhoneDetector(),
)
"""Every detector that needs nothing installed; of equal findings the earlier detector's counts."""

__all__ = [
    "DEFAULT",
    "CardDetector",
    "Detector",
    "EmailDetector",
    "Finding",
    "IBANDetector",
    "PhoneDetector",
    "PresidioDetector",
    "SecretDetector",
    "find",
    "resolve",
]
