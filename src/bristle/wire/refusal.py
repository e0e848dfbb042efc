"""Reasons for refusing input from other machines, as they are counted and shown."""

from __future__ import annotations

from enum import StrEnum


class Refusal(StrEnum):
    """What a decoder returns in place of a value; its text is the key of the refusal counters."""

    MALFORMED = "malformed"
    VERSION = "unknown version"
    WRONG_GROUP = "wrong group"
    NOT_A_MEMBER = "not a member"
    STALE_COOKIE = "stale cookie"
    BAD_SIGNATURE = "bad signature"
    FORGED_SENDER = "forged sender"
    UNKNOWN_SESSION = "unknown session"
    NOT_SEALED = "not sealed by this session"
    REPLAY = "replay"
    WRONG_SHAPE = "wrong shape"
    OVERSIZE = "oversize"
    BOMB = "decompression bomb"
    BAD_BODY = "body does not decode"
    BAD_DIGEST = "chunk does not match its digest"
    NOT_FINITE = "not finite"
    TOO_LARGE = "values too large"
    EXPIRED = "expired"
    LIVES_TOO_LONG = "expires too late"
    NOT_WANTED = "not asked for"
    EQUIVOCATION = "two statements of one number"
    OVER_BUDGET = "over budget"
    UNREAD = "dropped unread in a flood"
    NO_MEMORY = "no memory left for it"
    TOO_SLOW = "transfer too slow"
    FULL = "no room for another neighbour"
    USELESS = "too many useless messages"
    BANNED = "temporarily banned"
    BAD_ADDRESS = "address not fit to contact"
    NOT_FORWARDED = "not forwarded"
    OVER_ALLOWANCE = "over the inviter's allowance"
    REVOKED = "revoked"
    UNKNOWN_INVITER = "inviter not in the roster"
