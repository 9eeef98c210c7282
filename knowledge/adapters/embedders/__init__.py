"""Embedders: an OpenAI-compatible endpoint, and a model on this machine."""
