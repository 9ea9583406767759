"""Tells people, by notifiers of Airflow's providers, of tasks that failed, questions that wait, and more.

The Variable `rtolap_notifiers` lists them; without it nobody is told:

    [{"class": "airflow.providers.smtp.notifications.smtp.SmtpNotifier",
      "arguments": {"to": "ops@example.com", "subject": "{subject}", "html_content": "<pre>{html}</pre>"}},
     {"class": "airflow.providers.slack.notifications.slack_webhook.SlackWebhookNotifier",
      "arguments": {"slack_webhook_conn_id": "ops", "text": "{subject}: {text}"}}]

`{subject}`, `{text}` and `{html}`, the text for a page, are put into the arguments. Notifiers render their
arguments as Jinja templates: what comes from an error or a name is put there as a literal, and executes
nothing.
"""

from __future__ import annotations

import html
import importlib
import inspect
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from airflow.sdk import NEVER_EXPIRE, Context, Variable  # type: ignore[attr-defined,unused-ignore]
from airflow.sdk._shared.secrets_masker import redact
from airflow.sdk.bases.notifier import BaseNotifier
from airflow.sdk.timezone import utcnow

from rtolap.base.decoding import decode_json
from rtolap.base.errors import DefinitionError

log = logging.getLogger(__name__)

VARIABLE = "rtolap_notifiers"
TEXT_CHARACTERS_MAX = 4_000

_PLACE = re.compile(r"\{(subject|text|html)\}")
_ASKED = "question_told"
_ALLOWED = "airflow.providers."  # who may edit Variables may not have any code run


class Declared(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A notifier of the Variable: the path of its class, and its arguments with their places."""

    path: str = msgspec.field(name="class")
    arguments: dict[str, Any] = {}


@dataclass(frozen=True)
class Notice:
    """A message to people: a line, and a text with the link to what it is about."""

    subject: str
    text: str


class Notify(BaseNotifier):
    """Notifies by each of the notifiers that the Variable lists: for `on_failure_callback` and `notifiers`.

    Whatever fails here is in the task's log, and nothing else fails for it: a question is asked while the
    mail server is down, too.
    """

    def notify(self, context: Context) -> None:
        if "exception" in context:
            tell(notice_of(context), context)
            return
        # A retry asks the same question again; a clear, which allows more tries, asks anew.
        store, asked = context.get("task_state_store"), getattr(context["ti"], "max_tries", None)
        if store is not None and store.get(_ASKED) == asked:
            self.log.info("an earlier try has told of this question")
            return
        if tell(notice_of(context), context) and store is not None:
            store.set(_ASKED, asked, retention=NEVER_EXPIRE)


def tell(notice: Notice, context: Context) -> bool:
    """Tell it by every notifier that is declared; return True if one of them at least has done so.

    A failure is in the log, whatever a provider's client raises.
    """
    try:
        declared = declared_notifiers()
    except DefinitionError:
        log.exception("nobody is told")
        return False
    told = False
    for each in declared:
        try:
            notifier_of(each, notice)(dict(context))
        except Exception:
            log.exception("%s has told nobody", each.path)
        else:
            told = True
    return told


def declared_notifiers() -> Sequence[Declared]:
    """Return those of the Variable. Raises DefinitionError for one that is in no form."""
    value = Variable.get(VARIABLE, default="")
    if not value:
        return ()
    try:
        return decode_json(value.encode(), list[Declared])
    except msgspec.MsgspecError as error:
        raise DefinitionError(
            f"the Variable {VARIABLE} is in no form",
            expected='a list of {"class": …, "arguments": {…}}',
            found=str(error),
            action="correct the Variable in Airflow, Admin, Variables",
        ) from error


def notifier_of(declared: Declared, notice: Notice) -> BaseNotifier:
    """Return the notifier with its arguments filled in. Raises DefinitionError for a class that is none."""
    found = _class(declared.path)
    templated = set(found.template_fields)
    arguments = {
        name: _filled(value, notice, literal=name in templated) for name, value in declared.arguments.items()
    }
    notifier = found(**arguments)
    assert isinstance(notifier, BaseNotifier)
    return notifier


def notice_of(context: Context) -> Notice:
    """Return what there is to say of a task that asks or has failed. Secrets are masked."""
    ti, operator = context["ti"], context.get("task")
    name = f"{ti.dag_id}.{ti.task_id}"
    mapped = getattr(ti, "rendered_map_index", None)
    if mapped:
        name = f"{name} [{mapped}]"
    subject = getattr(operator, "subject", None)
    if "exception" not in context and isinstance(subject, str):
        said, text = f"rtolap asks: {subject}", getattr(operator, "body", None) or ""
    else:
        said, text = f"rtolap: {name} failed", str(context.get("exception") or "")
    lines = [f"Task {name} of run {ti.run_id}", str(redact(text))[-TEXT_CHARACTERS_MAX:]]
    if "exception" not in context:
        lines += [_asked(operator), _deadline(operator)]
    lines.append(str(ti.log_url))
    return Notice(" ".join(str(redact(said)).split()), "\n\n".join(line for line in lines if line))


def _asked(operator: Any) -> str:
    """Return who is asked; "" where everybody with the right is."""
    users = getattr(operator, "assigned_users", None) or []
    return "For: " + ", ".join(f"{user['name']} ({user['id']})" for user in users) if users else ""


def _deadline(operator: Any) -> str:
    """Return until when an answer is taken and what silence means; "" for a question without an end."""
    timeout = getattr(operator, "response_timeout", None)
    if timeout is None:
        return ""
    defaults = getattr(operator, "defaults", None)
    after = f"{', '.join(defaults)} is taken" if defaults else "the task fails"
    return f"Answer by {(utcnow() + timeout).isoformat(timespec='seconds')}, else {after}"


def _class(path: str) -> Any:
    module, _, name = path.rpartition(".")
    found = getattr(_module(module), name, None) if module.startswith(_ALLOWED) else None
    if not (inspect.isclass(found) and issubclass(found, BaseNotifier)):
        raise DefinitionError(
            f"the Variable {VARIABLE} names no notifier",
            expected=f"the path of a subclass of BaseNotifier below {_ALLOWED}",
            found=path,
            action="correct the path, and install its provider where tasks run",
        )
    return found


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def _filled(value: Any, notice: Notice, *, literal: bool) -> Any:
    if isinstance(value, str):
        words = {"subject": notice.subject, "text": notice.text, "html": html.escape(notice.text)}
        parts = {key: _literal(word) if literal else word for key, word in words.items()}
        return _PLACE.sub(lambda found: parts[found[1]], value)
    if isinstance(value, Mapping):
        return {key: _filled(each, notice, literal=literal) for key, each in value.items()}
    if isinstance(value, list):
        return [_filled(each, notice, literal=literal) for each in value]
    return value


def _literal(text: str) -> str:
    """Return a template whose rendering is the text."""
    return text.replace("{", "{{ '{' }}")
