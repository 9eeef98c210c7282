"""What an instruction to a model looks like: weighted families of phrases.

A rule is tried only near one of its `literals`, which every match of its pattern contains; that
makes ordinary text nearly free. Patterns see folded text in lower case whose white space has been
collapsed, and repeat within bounds, so a match is never longer than a few hundred characters.

The families describe what the words do to a reader that obeys: an order to drop earlier orders,
a sentence addressed to the machine, a request for what it must not tell. A plain imperative
("restart the service") is in none of them, because it cannot be told from a runbook.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

THRESHOLD = 3


@dataclass(frozen=True, slots=True)
class Rule:
    """One phrase of `family`. A text is flagged when its families' weights reach THRESHOLD."""

    family: str
    weight: int
    literals: tuple[str, ...]
    pattern: re.Pattern[str]


# Words that the phrases below share.
_WHICH = (
    r"(?:all|any|every|each|the|your|my|its|those|these|of|prior|previous|preceding|above|"
    r"foregoing|earlier|initial|former|existing|original|other|current|system|developer|safety|given)"
)
_ORDERS = (
    r"(?:instructions?|directions?|directives?|commands?|prompts?|guidelines?|guidance|rules?|"
    r"polic(?:y|ies)|messages?|restrictions?|constraints?|context|safeguards?|filters?|orders?)"
)
_MODEL = (
    r"(?:(?:(?:an?|any|all|the|every)\s)?(?:ai|a\.i\.|llm|language|retrieval|automated|chat)[\s-]"
    r"(?:assistants?|agents?|models?|systems?|bots?|reviewers?|summari[sz]ers?|tools?|readers?)"
    r"|llms?|chat ?bots?|chatgpt|claude|gemini|gpt-?\d?|copilots?|assistants?"
    r"|the (?:model|bot|agent)|ai\b)"
)
_MODEL_LITERALS = (
    *("ai ", "ai,", "ai:", "a.i.", "llm", "language model", "language-model", "retrieval", "bot "),
    *("bots", "bot,", "bot:", "bot.", "bot-"),
    *("chatgpt", "claude", "gemini", "gpt", "copilot", "assistant", "the model", "the agent"),
    *("ai-", "automated", "chat "),
)
_DROP = (
    r"(?:ignor(?:e|ing)|disregard(?:ing)?|forget|bypass|overlook|neglect|override|discard|drop|"
    r"void|set aside|pay no attention to|stop following|must not (?:follow|obey)|"
    r"do(?: not|n.?t) (?:follow|obey))"
)
_DROP_LITERALS = (
    *("ignor", "disregard", "forget", "bypass", "overlook", "neglect", "override", "discard"),
    *("drop", "void", "set aside", "attention to", "follow", "obey"),
)
_SHORT = r"[^.\n]{0,40}"
_LONG = r"[^.\n]{0,80}"


def _family(name: str, weight: int, *phrases: tuple[tuple[str, ...], str]) -> list[Rule]:
    return [Rule(name, weight, literals, re.compile(pattern)) for literals, pattern in phrases]


RULES: tuple[Rule, ...] = tuple(
    rule
    for family in (
        _family(
            "override",
            3,
            (_DROP_LITERALS, rf"\b{_DROP}[\s_](?:{_WHICH}[\s_]){{1,5}}{_ORDERS}\b"),
            (
                ("ignor", "disregard", "forget"),
                (
                    r"\b(?:ignore|disregard|forget)\s(?:everything|all|anything|what(?:ever)?)\s"
                    r"(?:that\s)?(?:you\s(?:were|have been|know)|above|before|i\ssaid|previously|prior|"
                    r"earlier|was said|comes? before)"
                ),
            ),
            (
                ("ignor", "disregard", "forget"),
                (
                    r"\b(?:ignore|disregard|forget)\s(?:the\s)?(?:above|preceding|foregoing|previous|"
                    r"prior|earlier)\b(?:\s(?:text|content|document|and|instructions?))"
                ),
            ),
            (
                ("void", "appl", "cancel", "superseded", "obsolete"),
                (
                    rf"\b{_ORDERS}\s(?:preceding|above|before|prior to)\b{_SHORT}\b"
                    r"(?:void|no longer appl|cancel|do not apply|superseded|obsolete)"
                ),
            ),
            (
                (
                    "void",
                    "cancel",
                    "revoked",
                    "superseded",
                    "overridden",
                    "replaced",
                    "no longer",
                    "suspended",
                    "lifted",
                ),
                (
                    rf"\b(?:(?:earlier|previous|prior|above|system|original|all)\s){{1,2}}{_ORDERS}\s"
                    r"(?:are|is|have been|has been)\s(?:now\s)?(?:void|cancel|revoked|superseded|"
                    r"overridden|replaced|no longer|suspended|lifted)"
                ),
            ),
            (
                ("new ",),
                (
                    r"\bnew\s(?:instructions?|task|directive|system prompt|rules)\s?"
                    r"(?::|for (?:the )?(?:assistant|ai|model|agent))"
                    r"|\byour new (?:task|goal|role|instructions?|objective|directive)\s"
                    r"(?:is|are|supersedes?|replaces?|overrides?)\b|\bbegin new instructions\b"
                ),
            ),
            (
                ("bound", "restricted", "limited", "subject", "required"),
                (
                    r"\byou(?:\sare|.re)?\s(?:no longer|not)\s"
                    r"(?:bound|restricted|limited|subject|required to follow)\b"
                ),
            ),
            (
                ("restriction", "polic", "safety", "guidelines", "limits"),
                (
                    r"\b(?:no|without(?: any)?)\s(?:restrictions?|content polic(?:y|ies)|"
                    r"safety (?:filters?|guidelines?|checks?)|limits?)\b[^.\n]{0,60}\b"
                    r"(?:answer|comply|respond|anything|you)\b"
                    rf"|\byou\b{_SHORT}\bno (?:restrictions?|content polic(?:y|ies)|guidelines)\b"
                ),
            ),
            (
                ("supersede", "replace", "override"),
                (
                    r"\b(?:supersedes?|replaces?|overrides?) (?:all|any|every) "
                    r"(?:prior|previous|earlier|other)\b[^.\n]{0,30}\b"
                    r"(?:ones?|instructions?|directives?|rules?|prompts?)\b"
                ),
            ),
            (
                ("your rules", "your guidelines", "your instructions", "your directive"),
                r"\byour (?:rules|guidelines|instructions|directives?) (?:have|has) (?:changed|been)\b",
            ),
        ),
        _family(
            "persona",
            3,
            (
                ("you are now",),
                (
                    r"\byou are now\s(?:an?\s|the\s|in\s)?(?:dan\b|unrestricted|developer mode|admin|"
                    r"root|jailbroken|free|\w{1,20},? an? (?:assistant|ai|model))"
                ),
            ),
            (
                ("from now on", "from here on", "this point on"),
                (
                    r"\bfrom (?:now|here|this point) on\b[^.\n]{0,20}\byou\b"
                    rf"{_SHORT}\b(?:will|must|are|act|have|should|shall|follow|answer|comply)"
                ),
            ),
            (
                (" mode",),
                (
                    r"\b(?:enter|enable|activate|switch to)\s(?:developer|debug|god|dan|jailbreak|"
                    r"unrestricted|admin|unsafe|maintenance)\smode\b|\bjailbreak\b[^.\n]{0,20}\bmode\b"
                ),
            ),
            (
                ("disable", "remove", "turn off", "skip", "bypass"),
                (
                    r"\b(?:disable|remove|turn off|skip|bypass)\s(?:(?:all|any|your|the)\s){0,3}"
                    r"(?:safety|security|content|moderation|confirmation)\s(?:filters?|checks?|"
                    r"polic(?:y|ies)|guardrails?|guidelines?|restrictions?|steps?|prompts?)\b"
                ),
            ),
            (
                ("pretend", "imagine", "assume"),
                (
                    r"\b(?:pretend|imagine|assume)\s(?:that\s)?(?:you\s(?:are|have|can)|the role)\b"
                    r"[^.\n]{0,60}\b(?:no|without|unrestricted|any(?:thing)?|admin|dan)\b"
                ),
            ),
            (
                ("play as", "stay in character", "act as", "do anything now"),
                (
                    r"\brole-?play as\b|\bstay in character\b|\bdo anything now\b"
                    r"|\bact as (?:my (?:deceased|late|dead|grand)|the site admin|root|"
                    r"an? (?:unrestricted|uncensored|jailbroken)|dan)\b"
                ),
            ),
            (
                ("uncensored", "unrestricted", "jailbroken", "grandmother"),
                (
                    r"\b(?:act as|behave as|become)\b[^.\n]{0,30}\b"
                    r"(?:uncensored|unrestricted|evil|jailbroken|grandmother)\b"
                    r"|\buncensored (?:model|ai|assistant|mode)\b"
                ),
            ),
        ),
        _family(
            "addressed",
            3,
            (
                _MODEL_LITERALS,
                (
                    r"\b(?:note|attention|message|instructions?|notice|reminder|dear|hey|hello|"
                    rf"important|warning)\s?(?:to|for)?\s?[,:]?\s?{_MODEL}\b"
                ),
            ),
            (
                _MODEL_LITERALS,
                (
                    rf"\b(?:if|when(?:ever)?|as)\s(?:you\s?(?:are|.re)\s)?{_MODEL}\b{_LONG}\b"
                    r"(?:you|it|must|should|state|say|tell|respond|reply|include|summari[sz])"
                ),
            ),
            (
                _MODEL_LITERALS,
                (
                    rf"\b{_MODEL}\b{_LONG}\b(?:reading|processing|summari[sz]ing|retriev\w{{1,4}}|"
                    r"integrating|parsing|reviewing|indexing)\b[^.\n]{0,60}\b(?:this|the)\b[^.\n]{0,60}"
                    r"\b(?:must|should|shall|need to|always|never|will|first|:)"
                ),
            ),
            (
                _MODEL_LITERALS,
                (
                    rf"\b{_MODEL}\b[^.\n]{{0,60}}\b(?:summari[sz]ing|reading|processing|indexing|"
                    r"retrieving|reviewing)\b[^.\n]{0,60}\b(?:must|should|shall|need to|have to)\b"
                ),
            ),
            (
                _MODEL_LITERALS,
                rf"\b{_MODEL}\s(?:must|shall|should always|should first|has to|needs to|will now)\b",
            ),
            (
                ("ai", "model", "llm", "bot"),
                (
                    r"\b(?:for|to)\s(?:the\s)?(?:ai|model|llm|bot)\s?(?:use\s)?(?:only)?\s?:"
                    r"|\(for (?:ai|llm|coding|automated)[\w\s-]{0,20}(?:agents?|assistants?|models?)\)\s?:?"
                    r"|\bintended for (?:the )?(?:ai|model|retrieval|language|assistant)\b"
                ),
            ),
            (
                ("assistant", "ai,", "ai:", "llm", "model", "bot"),
                (
                    r"(?:^|\n|[:!] )(?:assistant|ai|llm|model|bot)\s?[,:]\s?(?:please\s)?(?:ignore|"
                    r"disregard|tell|say|call|send|forward|reply|respond|include|append|do not|never|"
                    r"always|you|run|execute|understood)"
                ),
            ),
            (
                ("intended for",),
                r"\bintended for (?:the )?(?:ai|model|retrieval|language|assistant)\b",
            ),
        ),
        _family(
            "leak",
            3,
            (
                (
                    "prompt",
                    "hidden",
                    "instructions",
                    "context",
                    "conversation",
                    "admin notes",
                    "previous messages",
                    "memory",
                ),
                (
                    r"\b(?:reveal|print|show|output|repeat|display|disclose|leak|expose|dump|tell me|"
                    r"provide|include|paste|return|give me|quote)\b[^.\n]{0,50}\b(?:system prompt|"
                    r"hidden (?:instructions?|prompt|settings|notes)|initial (?:instructions?|prompt)|"
                    r"(?:your|the) (?:instructions?|prompt|context window|operating instructions)|"
                    r"conversation (?:so far|history)|admin notes|previous messages|"
                    r"contents? of your (?:memory|context))"
                ),
            ),
            (
                ("repeat", "starting with"),
                (
                    r"\brepeat (?:the |all )?(?:words|text|everything) above\b"
                    r"|\bstarting with (?:the phrase )?[\"“]you are\b"
                ),
            ),
            (
                ("your", "you were given"),
                (
                    r"\bwhat (?:were|are) your (?:initial|original|system) instructions\b"
                    r"|\b(?:operating instructions|system prompt|instructions) you were given\b"
                ),
            ),
            (
                ("internal config", "internal setting"),
                r"\b(?:dump|reveal|print|leak)\b[^.\n]{0,20}\binternal (?:configuration|settings)\b",
            ),
        ),
        _family(
            "exfiltration",
            3,
            (
                (
                    "send",
                    "forward",
                    "mail",
                    "post",
                    "upload",
                    "transmit",
                    "exfiltrate",
                    "leak",
                    "copy",
                    "deliver",
                    "share",
                ),
                (
                    r"\b(?:send|forward|e-?mail|post|upload|transmit|exfiltrate|leak|copy|deliver|share)\b"
                    r"[^.\n]{0,80}\b(?:conversation|chat history|customer (?:list|data)|"
                    r"user.?s? (?:data|e-?mail|address|phone|messages?|password|credentials?|files?)|"
                    r"credentials?|passwords?|api keys?|secrets?|private|confidential|inbox|"
                    r"every document|all (?:files|documents|data))\b[^\n]{0,100}(?:https?://|@|\bto\b)"
                ),
            ),
            (
                ("![",),
                r"!\[[^\]\n]{0,100}\]\(https?://[^)\s]{0,300}?[?&][^)\s=]{0,60}=\s?(?:\{|\[|<|%7b)",
            ),
            (
                ("append", "add", "include", "encode"),
                (
                    r"\b(?:append|add|include|encode)\b[^.\n]{0,60}\b(?:user.?s|conversation|question|"
                    r"api keys?|secrets?)\b[^.\n]{0,60}\b(?:url|link|query|base64|reply|answer|https?)"
                ),
            ),
            (
                ("ssh/id_", "aws/cred", ".env", "id_rsa", "/etc/passwd", "/etc/shadow"),
                (
                    r"(?:~/|\.)(?:ssh/id_|aws/cred|env\b)[^\n]{0,60}\b(?:body|response|reply|answer|"
                    r"send|paste|post)\b|\b(?:read|open|cat)\b[^\n]{0,40}(?:\.env|id_rsa|"
                    r"/etc/(?:passwd|shadow))\b[^\n]{0,80}\b(?:paste|reply|response|answer|send|include)\b"
                ),
            ),
            (
                ("inbox", "forward"),
                r"\bsearch the inbox\b|\bforward (?:them|it|this|everything) to\b[^\n]{0,40}@",
            ),
        ),
        _family(
            "tool",
            2,
            (
                ("use", "call", "invoke", "run", "execute", "trigger"),
                (
                    rf"\b(?:use|call|invoke|run|execute|trigger)\b{_SHORT}\b(?:tool|function call|"
                    r"send_email|delete_\w{1,20}|transfer_\w{1,20}|http_request|terminal|grant_access|"
                    r"\w{1,20}_(?:tool|user|file|document|email|payment|money))\b[^\n]{0,140}\b(?:before|"
                    r"then|without|do not|don.t|every|all|immediately|right now|and|to)\b"
                ),
            ),
            (
                ("without", "do not ask", "proceed", "skip"),
                (
                    r"\bwithout (?:asking|confirmation|informing|telling|notifying|mentioning|review|"
                    r"waiting)\b|\bdo not ask (?:for|the|again)\b|\bproceed without (?:asking|confirm)"
                    r"|\bskip (?:the |all )?confirmations?\b"
                ),
            ),
            (
                ("curl", "before"),
                (
                    r"\bcurl\b[^\n]{0,80}\|\s?(?:ba)?sh\b[^\n]{0,60}\b(?:tool|terminal|before answering)\b"
                    r"|\bbefore (?:answering|you answer|responding|replying)\b[^.\n]{0,60}\b(?:run|call|"
                    r"send|use|execute|read|open)\b|\b(?:run|call|send|use|execute)\b[^\n]{0,100}\b"
                    r"before (?:you answer|answering|responding)\b"
                ),
            ),
            (
                ("memory", "remember"),
                (
                    r"\b(?:save to memory|remember permanently|add to (?:your )?memory|"
                    r"store in (?:your )?(?:long-term )?memory)\b"
                ),
            ),
            (
                ("the user",),
                (
                    r"\bthe user (?:has )?(?:already )?(?:gave|given|granted|enabled|approved|"
                    r"authori[sz]ed|consented)\b[^.\n]{0,60}\b(?:permission|unsafe|so|all|mode|skip|this)"
                ),
            ),
        ),
        _family(
            "tool-call",
            3,
            (
                ("call", "invoke", "use", "execute"),
                (
                    r"\b(?:call|invoke|use|execute)\s`?(?:delete|remove|drop|send|transfer|grant|fetch|"
                    r"http|post|exec|run|wipe|forward|upload|update|write|create|add)_\w{1,30}`?\s"
                    r"(?:on|with|to|for|url|path|and)\b"
                ),
            ),
            (
                ("the following", "in the", "using the", "with the", "then "),
                (
                    r"\b(?:execute|run|make|perform) the following (?:function|tool) call\b"
                    r"|\b(?:in|using|with) the (?:terminal|shell|browser|e-?mail|payments?|http) tool\b"
                    r"|\bthen (?:say|state|claim|report|tell (?:the user|them)) that (?:nothing|no|everything|it)\b"
                ),
            ),
            (
                ("mail tool", "email tool", "payment tool", "file tool"),
                r"\b(?:call|use|invoke) the (?:e-?mail|mail|payment|file|shell) tool\b",
            ),
        ),
        _family(
            "covert",
            3,
            (
                ("the user", "the person", "users", "this ", "that ", "anyone"),
                (
                    r"\b(?:do not|don.t|never|without)\s(?:tell(?:ing)?|inform(?:ing)?|mention(?:ing)?|"
                    r"reveal(?:ing)?|notify(?:ing)?|disclos(?:e|ing)|alert(?:ing)?)\b[^.\n]{0,30}\b"
                    r"(?:the user|the person|users? about|"
                    r"this (?:instruction|note|step|paragraph|message)|that (?:this|you)|anyone)"
                ),
            ),
            (
                ("keep", "hide", "conceal"),
                (
                    r"\b(?:keep|hide|conceal)\b[^.\n]{0,30}\b(?:hidden|secret|from (?:the )?(?:user|person))\b"
                    r"[^.\n]{0,30}\b(?:user|person|talking)"
                ),
            ),
            (
                ("regardless", "no matter", "whatever"),
                (
                    rf"\b(?:regardless of|no matter) what\b{_SHORT}\b(?:sources?|question|user|documents?)\b"
                    rf"|\bwhatever the (?:question|user)\b{_SHORT}\b(?:respond|reply|say|answer)"
                ),
            ),
            (
                ("answer", "reply", "response", "summary", "output"),
                (
                    rf"\b(?:your|the) (?:answer|reply|response|summary|output)\b{_SHORT}\b"
                    r"(?:must|should always|has to)\b[^.\n]{0,30}\b"
                    r"(?:include|say|state|contain|mention|end with|begin with)\b"
                ),
            ),
            (
                ("when", "if ", "while"),
                (
                    r"\b(?:when|if|while)\s(?:you\s)?(?:summari[sz]\w{1,4}|quot\w{1,4}|cit\w{1,4}|"
                    r"answer\w{0,4}|asked|respond\w{0,4})\b[^.\n]{0,60}\b"
                    r"(?:always|you must|must|swap|replace|recommend|omit|never|append|include)\b"
                ),
            ),
            (
                ("append", "add", "include", "insert"),
                (
                    r"\b(?:append|add|include|insert)\b[^.\n]{0,60}\b(?:to|at|in) "
                    r"(?:the end of |every |each |your |all ){1,3}"
                    r"(?:answers?|repl(?:y|ies)|responses?|summar(?:y|ies)|outputs?)\b"
                    rf"|\binclude\b{_SHORT}\bin (?:your|every|each) (?:summary|response|reply|answer|report)\b"
                ),
            ),
            (
                ("reply", "respond", "answer", "print", "output", "say"),
                (
                    rf"\b(?:reply|respond|answer) (?:only )?with\b{_SHORT}\b(?:and nothing else|only|verbatim)"
                    r"|\b(?:reply|respond) only with\b"
                    r"|\b(?:simply|just|only) (?:respond|reply|print|output|say)\b"
                ),
            ),
            (
                ("quoting this", "into your"),
                (
                    r"\bwhen quoting this\b"
                    r"|\bpaste (?:it|them|this) into your (?:response|reply|answer)\b"
                ),
            ),
        ),
        _family(
            "markup",
            3,
            (
                ("<|", "inst]", "sys>>", "system"),
                (
                    r"<\|(?:im_start|im_end|system|user|assistant|endoftext|eot_id|start_header_id)\|?>?"
                    r"|\[/?inst\]|<</?sys>>"
                    r"|<\|?/?system(?:_?(?:prompt|reminder|message|notice))?\|?>"
                ),
            ),
            (
                ("system", "developer"),
                (
                    r"(?:^|\n)\s?(?:#{1,4}\s?|\*\*|\[)?(?:system|developer)"
                    r"(?: (?:prompt|message|note|notice|override|update|instruction)s?)?"
                    r"\]?(?:\*\*)?\s?:\s?\S"
                    r"|\[system (?:notice|note|message|override|update)\]"
                ),
            ),
            (
                ("</",),
                (
                    r"</(?:passage|knowledge|document|context|tool_result|user)[\w-]{0,20}>\s{0,2}"
                    r"(?:system|assistant|human|user)\s?:"
                ),
            ),
            (
                ("human:", "override"),
                r"\bhuman:\s[^\n]{0,200}\n{1,2}\s?assistant:|\boverride\s?:\s?priority\b",
            ),
            (
                ("```", "<!--", "display"),
                (
                    r"```\s?system\b|<!--[^>]{0,20}\b(?:ai|llm|assistant|model)\b\s?[,:][^>]{0,300}-->"
                    r"|display:\s?none[^>]{0,80}>[^<]{0,200}\b(?:assistant|ai|llm|model)\b"
                ),
            ),
        ),
        _family(
            "language",
            3,
            (
                ("ignor",),
                (
                    r"\bignor(?:iere?n?|a|e[zr]?|ad|ar)\b[^.\n]{0,30}\b(?:vorherigen|bisherigen|obigen|"
                    r"anteriores|previas|pr[ée]c[ée]dentes|precedenti)\b"
                    r"|\bignora\b[^.\n]{0,20}\binstru[çc]\w{1,8} anterior"
                ),
            ),
            (
                ("vergiss", "vergessen", "olvida", "oublie", "dimentica", "esque"),
                (
                    r"\b(?:vergiss|vergessen sie|olvida|oublie[zr]?|dimentica|esque[çc]a)\b"
                    rf"{_SHORT}\b(?:anweisungen|instrucciones|instructions|istruzioni|instru[çc][õo]es|"
                    r"aufgaben|alles|todo|tout|tutto)"
                ),
            ),
            (
                ("игнорир", "забудь", "忽略", "無視", "忘れ", "무시"),
                (
                    r"игнорир\w{1,8}[^.\n]{0,40}(?:инструкц|указан)|забудь[^.\n]{0,40}(?:инструкц|вс[её])"
                    r"|忽略[^。\n]{0,12}(?:指令|指示|说明)|(?:指示|命令)[^。\n]{0,8}(?:無視|忘れ)"
                    r"|(?:이전|모든)[^.\n]{0,12}지시[^.\n]{0,8}무시"
                ),
            ),
            (
                (
                    "sistem",
                    "system",
                    "syst",
                    "nota para",
                    "hinweis",
                    "системн",
                    "系统提示",
                    "システム",
                ),
                (
                    r"\b(?:nota di sistema|systemhinweis|nota del sistema|note syst[èe]me|"
                    r"nota para (?:la|el|a|o) (?:ia|asistente|assistente|modelo)|"
                    r"hinweis (?:an|f[üu]r) (?:die |den )?(?:ki|assistent\w{0,4}))\b"
                    r"|\bsystem-?prompt anzeigen|\bprompt (?:syst[èe]me|de sistema|di sistema)"
                    r"|\binvite syst[èe]me|\bmensaje del sistema|системн\w{1,4} промпт|系统提示"
                    r"|システムプロンプト|\bsystemprompt\b"
                    r"|\b(?:systemanweisung\w{0,4}|instrucciones del sistema|istruzioni di sistema|"
                    r"instructions (?:du )?syst[èe]me|instru[çc][õo]es do sistema)\b"
                ),
            ),
            (
                ("ignorier", "vergiss", "missachte", "einschr", "restri"),
                (
                    r"\b(?:ignoriere?|vergiss|missachte)\b[^.\n]{0,20}\b(?:deine|die|alle)\b[^.\n]{0,20}"
                    r"\b(?:richtlinien|regeln|anweisungen)\b|\b(?:ohne einschr(?:ä|ae)nkungen|"
                    r"uneingeschr(?:ä|ae)nkt|sans restrictions?|sin restricciones|senza restrizioni)\b"
                ),
            ),
            (
                ("du bist jetzt", "ahora eres", "tu es maintenant", "ora sei"),
                r"\b(?:du bist jetzt|ahora eres|tu es maintenant|ora sei)\b",
            ),
            (
                ("envoie", "env[ií]a", "envía", "envia", "invia", "sende"),
                r"\b(?:envoie|envoyez|env[íi]a|invia|sende)\b[^\n]{0,60}@",
            ),
        ),
        _family(
            "encoded",
            3,
            (
                ("decode", "decrypt", "translate", "rot13", "base64"),
                (
                    r"\b(?:decode|decrypt|translate|deobfuscate)\b[^.\n]{0,60}\b(?:and|then)\b[^.\n]{0,30}"
                    r"\b(?:follow|execute|do|run|obey|comply)"
                ),
            ),
        ),
        _family(
            "persistence",
            3,
            (
                (
                    "future",
                    "the rest of",
                    "subsequent",
                    "from now on",
                    "next user message",
                    "across",
                    "in every",
                ),
                (
                    r"\b(?:for (?:the rest of|all future)|in all (?:future|subsequent)|from now on|"
                    r"on the next user message|across (?:turns|sessions)|"
                    r"in every (?:future )?(?:summary|response|reply|answer|report))\b[^\n]{0,100}\b"
                    r"(?:you|your|repl(?:y|ies)|respon\w{1,6}|answers?|summar\w{1,4}|reports?|append|"
                    r"include|token|code|prompt)\b"
                ),
            ),
            (
                ("end ", "begin ", "start ", "finish ", "memory", "remember"),
                (
                    r"\b(?:end|begin|start|finish)\s(?:every|each|all|your)\s"
                    r"(?:response|reply|answer|message|summar)\w{0,4}\swith\b"
                    r"|\b(?:long-term|persistent) memory\b[^\n]{0,80}\b(?:always|append|never|trusted)\b"
                    r"|\bremember (?:permanently|for all future)\b"
                ),
            ),
            (
                ("that your",),
                (
                    r"\bit is (?:essential|critical|imperative|important) that your "
                    r"(?:answer|summary|reply|response|review)\b"
                ),
            ),
        ),
        _family(
            "safeguards-off",
            3,
            (
                ("safety", "content", "security"),
                (
                    r"\b(?:safety|content|security) (?:protocols?|polic(?:y|ies)|guidelines?|filters?|"
                    rf"checks?)\b{_SHORT}\b(?:disabled|lifted|suspended|were not meant|"
                    r"do(?:es)? not apply|exempt|off)\b"
                    r"|\b(?:disregard|ignore) the (?:content|safety|usage) polic"
                ),
            ),
            (
                ("respond", "answer", "reply", "comply", "proceed", "output", "exempt"),
                (
                    rf"\b(?:respond|answer|reply|comply|proceed|output)\b{_SHORT}\b"
                    r"(?:without (?:any )?(?:limits|restrictions?|question|filters?)|unrestricted|"
                    r"restricted content)\b|\bexempt from the usual restrictions\b"
                ),
            ),
        ),
    )
    for rule in family
)

LITERALS: frozenset[str] = frozenset(literal for rule in RULES for literal in rule.literals)
