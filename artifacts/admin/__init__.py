"""The admin's pages of bytes, one file for each thing; importing registers them."""

from artifacts.admin import originals, quotas, sweeper, uploads

__all__ = ["originals", "quotas", "sweeper", "uploads"]
