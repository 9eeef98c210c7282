"""The port `InstructionScanner`: text that reads like an instruction to a model."""

from knowledge.adapters.injection.scanner import RuleInstructionScanner

__all__ = ["RuleInstructionScanner"]
