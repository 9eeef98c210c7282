"""The port `SecretScanner`: credentials in a text, by shape and by context."""

from knowledge.adapters.secrets.scanner import LayeredSecretScanner

__all__ = ["LayeredSecretScanner"]
