"""Every setting, read once from environment variables; `.env.example` documents each."""

from __future__ import annotations

import importlib.util
import os
import secrets
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.core.exceptions import ImproperlyConfigured

from config import environment
from config.embedders import configured_embedder
from config.places import Places
from config.routines import SCHEDULE

BASE_DIR = Path(__file__).resolve().parent.parent
VAR = environment.folder("VERBATIM_VAR", BASE_DIR / "var")
DEBUG = environment.flag("DEBUG", default=False)

# --- services

SERVICES = Places.of(VAR)
EMBEDDED_POSTGRES = not environment.text("DATABASE_URL", "")
EMBEDDED_VALKEY = not environment.text("REDIS_URL", "")

_database = environment.database("DATABASE_URL", SERVICES.database_url())
_pool_size = environment.number("DATABASE_POOL_SIZE", 0, most=1000)


def _server(address: dict[str, Any], *, patience: int) -> dict[str, Any]:
    """How a database is used; `patience` are the seconds that a request waits for a connection."""
    pool = {
        "min_size": 1,
        "max_size": _pool_size,
        "timeout": patience,
        # Whoever asks after an outage finds out soon that it is over.
        "reconnect_timeout": 10,
    }
    return {
        **address,
        "ENGINE": "django.db.backends.postgresql",
        "ATOMIC_REQUESTS": False,
        "CONN_MAX_AGE": 0,
        # Those of a pool outlive the server that they were made to.
        "CONN_HEALTH_CHECKS": bool(_pool_size),
        "OPTIONS": {
            **address.get("OPTIONS", {}),
            "application_name": "verbatim",
            "connect_timeout": patience,
            # Only the web process keeps connections ready; a command opens the one it needs.
            **({"pool": pool} if _pool_size else {}),
        },
    }


DATABASES: dict[str, dict[str, Any]] = {"default": _server(_database, patience=10)}
if environment.text("DATABASE_REPLICA_URL", ""):
    # Searches look there, when it has what the primary has; whoever writes never does.
    _replica = _server(environment.database("DATABASE_REPLICA_URL", ""), patience=2)
    # A host that vanished without a word is noticed, too: the primary answers meanwhile.
    _replica["OPTIONS"].update(keepalives_idle=5, keepalives_interval=2, tcp_user_timeout=10_000)
    DATABASES["replica"] = {**_replica, "TEST": {"MIRROR": "default"}}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

REDIS_URL = environment.redis_server("REDIS_URL", SERVICES.redis_url())
CACHES = {
    "default": {
        "BACKEND": "django.core.cache.backends.redis.RedisCache",
        "LOCATION": REDIS_URL,
        "KEY_PREFIX": "verbatim",
    }
}

# --- where people find us, and how much of HTTPS follows from that

PORT = environment.number("PORT", 8000, least=1, most=65535)
_local = f"http://localhost:{PORT}" if EMBEDDED_POSTGRES or DEBUG else ""
BIND = environment.text("VERBATIM_BIND", "127.0.0.1")
VERBATIM_PUBLIC_URL = environment.web_address("VERBATIM_PUBLIC_URL", _local)
_https = VERBATIM_PUBLIC_URL.startswith("https://")
_own_hosts = [str(urlsplit(VERBATIM_PUBLIC_URL).hostname)]
if EMBEDDED_POSTGRES or DEBUG:
    _own_hosts += ["localhost", "127.0.0.1", "[::1]"]
ALLOWED_HOSTS = environment.names("ALLOWED_HOSTS", _own_hosts)
CSRF_TRUSTED_ORIGINS = environment.names("CSRF_TRUSTED_ORIGINS", [VERBATIM_PUBLIC_URL])
if wrong := [origin for origin in CSRF_TRUSTED_ORIGINS if "://" not in origin]:
    raise ImproperlyConfigured(
        f"CSRF_TRUSTED_ORIGINS needs a scheme, such as https://example.org, not {wrong[0]!r}."
    )
if environment.flag("TRUST_PROXY_HEADERS", default=False):
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")

SECURE_SSL_REDIRECT = environment.flag("SECURE_SSL_REDIRECT", default=_https)
# Whoever asks whether we are alive, and how, asks the process itself, without TLS.
SECURE_REDIRECT_EXEMPT = [r"^livez$", r"^readyz$", r"^metrics$"]
SECURE_HSTS_SECONDS = environment.number("SECURE_HSTS_SECONDS", 31_536_000 if _https else 0)
SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_HSTS_SECONDS > 0
SECURE_HSTS_PRELOAD = SECURE_HSTS_SECONDS > 0
SECURE_REFERRER_POLICY = "same-origin"
SECURE_CROSS_ORIGIN_OPENER_POLICY = "same-origin"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = _https
SESSION_COOKIE_HTTPONLY = CSRF_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_NAME = "verbatim_session"
CSRF_COOKIE_NAME = "verbatim_csrf"
X_FRAME_OPTIONS = "DENY"


def _secret_key() -> str:
    if given := environment.text("SECRET_KEY", ""):
        return given
    if not (EMBEDDED_POSTGRES or DEBUG):
        raise ImproperlyConfigured(
            "Set SECRET_KEY to at least 50 random characters; it signs sessions and citation "
            'links. One way: python -c "import secrets; print(secrets.token_urlsafe(64))"'
        )
    path = VAR / "secret_key"
    VAR.mkdir(parents=True, exist_ok=True)
    try:
        # Linked into place whole, so that of several processes at once all read the same key.
        fresh = VAR / f"secret_key.{os.getpid()}.{secrets.token_hex(4)}"
        if not path.exists():
            with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as new:
                new.write(secrets.token_urlsafe(64))
            try:
                os.link(fresh, path)
            except FileExistsError:
                pass
            finally:
                fresh.unlink()
        return path.read_text().strip()
    except OSError as error:
        raise ImproperlyConfigured(
            f"{path} cannot be used ({error.strerror}): set SECRET_KEY, or VERBATIM_VAR to a "
            "folder of your own."
        ) from error


SECRET_KEY = _secret_key()

# How long a citation link of a search opens for whoever holds it.
CITATION_LINK_DAYS = environment.number("CITATION_LINK_DAYS", 30, least=1)

# What Prometheus names when it scrapes /metrics, which has the names of tenants in it.
_LEAST_TOKEN = 16
METRICS_TOKEN = environment.text("METRICS_TOKEN", "")
if METRICS_TOKEN and len(METRICS_TOKEN) < _LEAST_TOKEN:
    raise ImproperlyConfigured(f"METRICS_TOKEN needs at least {_LEAST_TOKEN} random characters.")
METRICS_ON_LOOPBACK = EMBEDDED_POSTGRES or DEBUG

# --- the application

INSTALLED_APPS = [
    "config.apps.ConfigConfig",
    "knowledge.apps.KnowledgeConfig",
    "artifacts.apps.ArtifactsConfig",
    "access.apps.AccessConfig",
    # Django's own admin under a site of ours.
    "knowledge.admin_site.apps.VerbatimAdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.postgres",
    "django.contrib.staticfiles",
    "rest_framework",
    "django_htmx",
    "drf_spectacular",
    "drf_spectacular_sidecar",
]
# --- the semantic arm: an app that is there where an embedder is

# The one in use, and one that is to take its place (`manage.py embed --switch`).
EMBEDDERS = [
    found
    for found in (configured_embedder("EMBEDDER"), configured_embedder("NEXT_EMBEDDER"))
    if found is not None
]
if EMBEDDERS:
    INSTALLED_APPS.insert(2, "knowledge.semantic.apps.SemanticConfig")
SEARCH_FUSION = environment.choice("SEARCH_FUSION", "calibrated", ("calibrated", "rrf"))

MIDDLEWARE = [
    "config.request_ids.RequestIdMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "config.policy.ContentSecurityPolicyMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    # Static files are not timed.
    "config.metrics.DurationsMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "access.operator_session.OperatorSessionMiddleware",
    "access.operator_timezone.OperatorTimezoneMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
ROOT_URLCONF = "config.urls"
ASGI_APPLICATION = "config.asgi.application"
WSGI_APPLICATION = "config.wsgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    }
]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {
        "NAME": "django.contrib.auth.password_validation.MinimumLengthValidator",
        "OPTIONS": {"min_length": 12},
    },
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.NumericPasswordValidator"},
]
LANGUAGE_CODE = "en-gb"
TIME_ZONE = "UTC"
USE_TZ = True
USE_I18N = True
FORMAT_MODULE_PATH = "config.formats"

# --- bytes

ARTIFACT_STORAGE = environment.choice("ARTIFACT_STORAGE", "files", ("files", "s3"))
ARTIFACT_ROOT = environment.folder("ARTIFACT_ROOT", VAR / "blobs")
ARTIFACT_TTL_DAYS = environment.number("ARTIFACT_TTL_DAYS", 30, least=1)
# An upload in pieces to which none was added for so long is given up.
UPLOAD_DAYS = environment.number("UPLOAD_DAYS", 7, least=1)
# What each tenant's uploads may take up; 0 is no limit.
UPLOAD_QUOTA_BYTES = environment.number("UPLOAD_QUOTA_BYTES", 0)
# A folder whose files `knowledge.attach_file` reads, and the tenants who may; none named is all.
WORKSPACE_ROOT = (
    environment.folder("WORKSPACE_ROOT", VAR) if environment.text("WORKSPACE_ROOT", "") else None
)
WORKSPACE_TENANTS = environment.names("WORKSPACE_TENANTS", [])
ORPHAN_GRACE_HOURS = environment.number("ORPHAN_GRACE_HOURS", 24, least=1)
# An unfinished ingest that nobody has worked on for so long is given up.
ABANDONED_INGEST_DAYS = environment.number("ABANDONED_INGEST_DAYS", 7, least=1)
# Days that a proposal to keep a file waits for an operator.
PROPOSAL_DAYS = environment.number("PROPOSAL_DAYS", 30, least=1)
# A trace is kept whole for so many days, then as ids, hashes and counts until it goes.
TRACE_FULL_DAYS = environment.number("TRACE_FULL_DAYS", 30, least=1)
TRACE_DAYS = environment.number("TRACE_DAYS", 365, least=max(TRACE_FULL_DAYS, 2))
MAX_DOCUMENT_BYTES = environment.number("MAX_DOCUMENT_BYTES", 32 * 1024**2, least=1)
# Compiling the rules takes seconds; a process that finds them here starts at once.
SECRET_RULES_CACHE = environment.folder("SECRET_RULES_CACHE", VAR / "secret-rules")
# Read before the built-in ones; the first that supports a media type wins.
VERBATIM_EXTRACTORS = environment.names("VERBATIM_EXTRACTORS", [])
# Beside the scanner's own.
VERBATIM_SECRET_RULES = environment.names("VERBATIM_SECRET_RULES", [])
MAX_UPLOAD_BYTES = environment.number("MAX_UPLOAD_BYTES", 256 * 1024**2, least=1)

# --- admission

KNOWLEDGE_ADMISSION_POLICY = environment.text("KNOWLEDGE_ADMISSION_POLICY", "")

# --- files


def _blobs() -> dict[str, Any]:
    if ARTIFACT_STORAGE == "s3":
        return {"BACKEND": "artifacts.s3.BlobStorage", "OPTIONS": _bucket()}
    return {
        "BACKEND": "django.core.files.storage.FileSystemStorage",
        "OPTIONS": {
            "location": ARTIFACT_ROOT,
            # Never reached by an address of its own, and nobody else's to read.
            "base_url": None,
            "file_permissions_mode": 0o600,
            "directory_permissions_mode": 0o700,
        },
    }


def _bucket() -> dict[str, Any]:
    if importlib.util.find_spec("storages") is None or importlib.util.find_spec("boto3") is None:
        raise ImproperlyConfigured(
            "ARTIFACT_STORAGE=s3 needs the extra 's3' of this project (django-storages and boto3)."
        )
    bucket = environment.text("ARTIFACT_S3_BUCKET", "")
    if not bucket:
        raise ImproperlyConfigured("ARTIFACT_STORAGE=s3 needs ARTIFACT_S3_BUCKET, a bucket's name.")
    # The client reads them itself; one alone would be ignored without a word.
    key = environment.text("AWS_ACCESS_KEY_ID", "")
    if bool(key) != bool(environment.text("AWS_SECRET_ACCESS_KEY", "")):
        raise ImproperlyConfigured(
            "Set both AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or neither where the machine has"
            " a role of its own."
        )
    endpoint = environment.text("ARTIFACT_S3_ENDPOINT", "")
    if endpoint:
        environment.web_address(
            "ARTIFACT_S3_ENDPOINT", "", what="of a store, such as https://s3.example.org"
        )
    # Elsewhere than at Amazon a region means little, but requests are signed with one.
    region = environment.text("ARTIFACT_S3_REGION", "us-east-1" if endpoint else "")
    return {
        "bucket_name": bucket,
        "endpoint_url": endpoint or None,
        "region_name": region or None,
        "location": environment.text("ARTIFACT_S3_PREFIX", "").strip("/"),
    }


STATIC_URL = "/static/"
STATIC_ROOT = environment.folder("STATIC_ROOT", VAR / "static")
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.InMemoryStorage"},
    "artifacts": _blobs(),
    "staticfiles": {"BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"},
}
# A JSON body carries at most one piece of an upload or one query; files are streamed.
DATA_UPLOAD_MAX_MEMORY_SIZE = environment.number("MAX_BODY_BYTES", 1024**2, least=96 * 1024)
FILE_UPLOAD_HANDLERS = ["django.core.files.uploadhandler.TemporaryFileUploadHandler"]

# --- the API

# Requests that a key may make in a minute, unless it has a limit of its own; 0 is no limit.
RATE_LIMIT_PER_MINUTE = environment.number("RATE_LIMIT_PER_MINUTE", 6000)
# Hours for which the answer to a write with an Idempotency-Key is kept.
IDEMPOTENCY_HOURS = environment.number("IDEMPOTENCY_HOURS", 24, least=1)
REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": ["access.authentication.ApiKeyAuthentication"],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_RENDERER_CLASSES": ["access.problems.ProblemRenderer"],
    "DEFAULT_PARSER_CLASSES": ["rest_framework.parsers.JSONParser"],
    "DEFAULT_SCHEMA_CLASS": "access.openapi.ApiSchema",
    "DEFAULT_THROTTLE_CLASSES": ["access.throttling.KeyThrottle"],
    "EXCEPTION_HANDLER": "access.problems.problem_handler",
    "UNAUTHENTICATED_USER": None,
    "URL_FORMAT_OVERRIDE": None,
}

# --- the protocol of agents

# Calls that one web process works on at once; each has a thread and a database connection.
MCP_CONCURRENCY = environment.number("MCP_CONCURRENCY", 8, least=1, most=1000)
# Clients take no longer answers of a tool: some refuse them, some cut them.
MCP_RESULT_TOKENS = environment.number("MCP_RESULT_TOKENS", 20_000, least=4_000)
# Web pages that may call it. Programs say no origin.
MCP_ALLOWED_ORIGINS = environment.names("MCP_ALLOWED_ORIGINS", [VERBATIM_PUBLIC_URL])

SPECTACULAR_SETTINGS = {
    "TITLE": "Verbatim",
    "DESCRIPTION": "A knowledge store that agents can quote from, word for word.",
    "VERSION": "1",
    "OAS_VERSION": "3.1.0",
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_AUTHENTICATION": [],
    "SERVE_PERMISSIONS": ["rest_framework.permissions.AllowAny"],
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "SWAGGER_UI_SETTINGS": {"deepLinking": True, "persistAuthorization": False},
    "COMPONENT_SPLIT_REQUEST": True,
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "config.examples.add_examples",
    ],
    "SCHEMA_PATH_PREFIX": "/v1",
    # Fields of one name with words of their own.
    "ENUM_NAME_OVERRIDES": {
        "VisibilityEnum": ["principal", "project", "tenant"],
        "ProposedVisibilityEnum": ["project", "tenant"],
        "OmittedReasonEnum": ["floor", "cap", "budget", "passages", "duplicate"],
        "RecordKindEnum": ["page", "claim", "relationship"],
        "EmptyReasonEnum": ["disabled", "below_floor", "budget"],
    },
}

# --- background work

CELERY_BROKER_URL = (
    REDIS_URL.replace("unix://", "redis+socket://", 1)
    if REDIS_URL.startswith("unix://")
    else REDIS_URL
)
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
# A request that only hints at work does not wait for a broker that is away.
CELERY_BROKER_TRANSPORT_OPTIONS = {"socket_connect_timeout": 3, "socket_timeout": 10}
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_TASK_SERIALIZER = "json"
CELERY_TASK_IGNORE_RESULT = True
# A task that a killed worker held is given to another: every task is safe to run twice.
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_REJECT_ON_WORKER_LOST = True
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_TASK_DEFAULT_QUEUE = "verbatim"
CELERY_TIMEZONE = "UTC"
CELERY_BEAT_SCHEDULE = SCHEDULE
CELERY_BEAT_SCHEDULE_FILENAME = str(VAR / "beat-schedule")

# --- logs: constant events and ids, never content

_level = environment.choice("LOG_LEVEL", "INFO", ("DEBUG", "INFO", "WARNING", "ERROR"))
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"json": {"()": "config.logs.JsonFormatter"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "json"}},
    "root": {"handlers": ["stderr"], "level": _level},
    "loggers": {
        "django": {"handlers": [], "level": _level, "propagate": True},
        # Debugging these would write queries and passages down.
        "django.db.backends": {"level": "INFO"},
        "markdown_it": {"level": "WARNING"},
        "mcp": {"level": "WARNING"},
    },
}
