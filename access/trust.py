"""Ordered vocabularies of who vouches for a request and how sensitive a document is."""

from __future__ import annotations

from enum import StrEnum


class OrderedStrEnum(StrEnum):
    """Members compare by their order of definition, lowest first, and are stored as text."""

    @property
    def rank(self) -> int:
        return list(type(self)).index(self)

    def at_most(self, ceiling: OrderedStrEnum) -> bool:
        return self.rank <= ceiling.rank

    def at_least(self, floor: OrderedStrEnum) -> bool:
        return self.rank >= floor.rank


class OriginTrust(OrderedStrEnum):
    """Where the words of the turn came from. Set by the host, never by a model."""

    EXTERNAL_UNTRUSTED = "EXTERNAL_UNTRUSTED"
    TOOL = "TOOL"
    MODEL = "MODEL"
    USER = "USER"
    SYSTEM = "SYSTEM"

    @classmethod
    def effective(cls, claimed: OriginTrust | None, ceiling: OriginTrust) -> OriginTrust:
        """The lower of what the request states (absent: untrusted) and what the key allows."""
        stated = claimed or cls.EXTERNAL_UNTRUSTED
        return min(stated, ceiling, key=lambda trust: trust.rank)


class Sensitivity(OrderedStrEnum):
    PUBLIC = "public"
    INTERNAL = "internal"
    CONFIDENTIAL = "confidential"
    RESTRICTED = "restricted"

    @classmethod
    def up_to(cls, ceiling: Sensitivity) -> tuple[Sensitivity, ...]:
        return tuple(level for level in cls if level.at_most(ceiling))


class OperatorPermission(StrEnum):
    """What an operator may do with the tenant they look after; every one of them may view.

    `manage` is all that changes something and has no word of its own: uploads, titles, scopes,
    holds, jobs, keys, policies, golden sets. `release` decides on quarantined passages, `approve`
    on what agents propose to keep.
    """

    VIEW = "view"
    MANAGE = "manage"
    DELETE = "delete"
    RELEASE = "release"
    APPROVE = "approve"


class Scope(StrEnum):
    """The closed vocabulary of what a key may do. Searching needs none of them."""

    WRITE = "knowledge.write"
    DELETE = "knowledge.delete"
    AUDIT = "knowledge.audit"
