"""Options that the agent's programs may be given, and their form: declared, everything else is refused."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from rtolap.agent.forms import NAME, NUMBER, Fits, is_master, is_name, is_number
from rtolap.agent.host import Host
from rtolap.base.errors import DefinitionError


def _below_data_dir(value: str, host: Host) -> bool:
    path, root = Path(value).resolve(), host.data_dir.resolve()
    return path != root and path.is_relative_to(root)


def _own_sources(value: str, host: Host) -> bool:
    return host.fleet_sources is not None and Path(value).resolve() == host.fleet_sources.resolve()


RTOLAP_OPTIONS: Mapping[tuple[str, ...], Mapping[str, Fits]] = {
    ("receiver", "serve"): {
        "--id": is_name,
        "--replica-set": is_name,
        "--data-dir": _below_data_dir,
        **dict.fromkeys(
            (
                *("--port", "--metrics-port", "--flush-rows", "--flush-bytes", "--checkpoint-interval-s"),
                *("--fragments-max", "--merge-bytes-max", "--unbuilt-segments-max"),
                *("--disk-free-bytes-min", "--idle-after-s"),
            ),
            is_number,
        ),
    },
    ("loader", "run"): {"--port": is_number, "--process": is_number},
    ("publish", "serve"): {"--metrics-port": is_number},
    ("sep", "serve"): {"--port": is_number, "--metrics-port": is_number, "--host": is_name},
    ("fleet", "serve"): {
        "--cluster": is_name,
        "--sources": _own_sources,
        **dict.fromkeys(
            ("--metrics-port", "--look-every-s", "--produce-p99-ms-max", "--produce-every-s"), is_number
        ),
    },
    ("coordinator", "serve"): {},
    ("query", "serve"): dict.fromkeys(
        (
            *("--memory-mb", "--threads", "--queries-max", "--connections-max"),
            *("--login-timeout-s", "--idle-timeout-s"),
        ),
        is_number,
    ),
    ("spark", "serve"): {"--memory-mb": is_number, "--master": is_master},
    ("agent", "sleep"): {"--seconds": is_number, "--exit-code": is_number},
}
RTOLAP_NAMED = frozenset(
    {("loader", "run"), ("sep", "serve"), ("publish", "serve")}
)  # commands with a name before their options

# What a process may be given beside the agent's own environment: nothing that names a file or a server.
ENVIRONMENT: Mapping[str, re.Pattern[str]] = {
    "RTOLAP_LOG_LEVEL": re.compile("DEBUG|INFO|WARNING|ERROR"),
    "RTOLAP_SESSION_TIMEOUT_S": NUMBER,
    "AWS_REGION": NAME,
    "AWS_DEFAULT_REGION": NAME,
    "TZ": re.compile(r"[A-Za-z0-9_+-]{1,32}(/[A-Za-z0-9_+-]{1,32}){0,2}"),
    "LANG": NAME,
    "LC_ALL": NAME,
}


def check_name(what: str, name: str) -> None:
    if not NAME.fullmatch(name):
        raise DefinitionError(
            f"{what} refused", expected="a name of letters, digits and . _ -", found=repr(name)
        )


def check_options(what: str, words: Sequence[str], options: Mapping[str, Fits], host: Host) -> None:
    """Check `words`: option, value, option, value, … Raises DefinitionError."""
    for at in range(0, len(words), 2):
        option, value = words[at], words[at + 1] if at + 1 < len(words) else None
        fits = options.get(option)
        if fits is None or value is None:
            raise DefinitionError(
                f"option of {what} refused",
                expected=f"{', '.join(sorted(options)) or 'none'}, each with a value of its own",
                found=repr(option),
            )
        if not fits(value, host):
            raise DefinitionError(
                f"{option} of {what} refused",
                expected="a value that names no code, file or server but this host's own",
                found=repr(value.partition("=")[0] if option == "--conf" else value),
                action="set up the agent's host otherwise: its environment, or its spark-defaults.conf",
            )


def check_environment(env: Mapping[str, str]) -> None:
    for name, value in env.items():
        pattern = ENVIRONMENT.get(name)
        if pattern is None or not pattern.fullmatch(value):
            raise DefinitionError(
                "environment addition refused",
                expected=f"one of {', '.join(sorted(ENVIRONMENT))} with a plain value",
                found=repr(name),
                action="what else the processes of this host need stands in the environment of its agent",
            )
