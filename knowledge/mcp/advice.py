"""What a model does about an error: a sentence for each code that a tool can answer with."""

from __future__ import annotations

from typing import Any, Final

_BY_CODE: Final = {
    "answer_too_large": "Ask for less at once.",
    "checksum_mismatch": "Take the SHA-256 of the bytes of this piece anew, and send it again.",
    "deleted": "It was deleted for good. Say so, and do not quote it; search for something else.",
    "extraction_timeout": "Do not try again with this file. Tell the person to admit it in parts.",
    "ingest_incomplete": "Call again with the same arguments and resume: true.",
    "ingest_scope_mismatch": "Do not try again. Tell the person: it is there with another"
    " visibility, which they can change.",
    "malformed": "Correct the named argument and call again.",
    "not_found": "Do not guess ids: take them from a search of this conversation, or search again.",
    "project_forbidden": "Leave current_scope out, or name a project that you were given.",
    "scope_missing": "Do not try again. Tell the person which scope their API key lacks.",
    "secret_found": "Do not try again with this file, and do not repeat what stands there. Tell the"
    " person in which lines a credential stands, so that they take it out.",
    "sensitivity_above_ceiling": "Do not try again. Tell the person that their API key does not"
    " reach so far.",
    "untrusted_origin": "Do not try again. Call knowledge.propose_retention, so that a person"
    " decides.",
    "upload_conflict": "Another call sent something else under this request_id: take a new one, and"
    " send the file from its beginning.",
    "upload_out_of_order": "Send the piece that begins at next_offset.",
    "upload_quota_exceeded": "Do not try again. Tell the person that there is no room left.",
}
_LATER: Final = "Wait {seconds} seconds, and call again with the same arguments."
_BY_STATUS: Final = {
    400: "Correct the arguments and call again.",
    403: "Do not try again. Tell the person that their API key may not do this.",
    404: _BY_CODE["not_found"],
    409: "Look at what is there first, then decide whether to call again.",
    410: _BY_CODE["deleted"],
    413: "Do not try again with this file. Tell the person that it is too large.",
    415: "Do not try again with this file. Tell the person which kind of file it is.",
    422: "Do not try again with this file. Tell the person what is wrong with it.",
    429: _LATER,
    500: "Try once more; if it happens again, tell the person.",
    503: _LATER,
}


def advice(problem: dict[str, Any], *, seconds: str) -> str:
    """What to do about a problem; `seconds` is what there is to wait, where waiting helps."""
    told = _BY_CODE.get(problem["code"]) or _BY_STATUS.get(problem["status"], _BY_STATUS[500])
    return told.format(seconds=seconds)
