"""Personal data in a passage: which detectors fire, and where; never the value."""

from knowledge.adapters.pii.national_ids import known_countries
from knowledge.adapters.pii.scanner import PiiScanner

__all__ = ["PiiScanner", "known_countries"]
