"""A statement as words, names, texts, numbers and marks, for a grammar that takes one after the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import sqlglot
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import TokenType

from rtolap.base.errors import QueryError, SqlSyntaxError, UnsupportedSql

WordKind = Literal["word", "name", "text", "number", "mark", "end"]
_KINDS: dict[TokenType, WordKind] = {
    TokenType.STRING: "text",
    TokenType.IDENTIFIER: "name",
    TokenType.NUMBER: "number",
}
_SHOWN = 40  # characters of the statement in an error


@dataclass(frozen=True)
class Word:
    """A word of a statement.

    Attributes:
        kind: `name` is a word in backticks.
        at: position in the statement at which the word begins.
    """

    kind: WordKind
    text: str
    at: int


class Words:
    """The rest of a statement, word by word. A method that takes something raises QueryError where it is not
    there."""

    def __init__(self, sql: str) -> None:
        self._sql = sql
        self._words = _split(sql)
        self._next = 0

    def at(self, *words: str) -> bool:
        """Return True if these words come next, in any case."""
        coming = self._words[self._next : self._next + len(words)]
        return len(coming) == len(words) and all(
            coming_word.kind in ("word", "mark") and coming_word.text.upper() == word
            for coming_word, word in zip(coming, words, strict=True)
        )

    def accept(self, *words: str) -> bool:
        """Skip these words if they come next."""
        if self.at(*words):
            self._next += len(words)
            return True
        return False

    def expect(self, *words: str) -> None:
        if not self.accept(*words):
            raise self.wrong(" ".join(words))

    def name(self, expected: str) -> str:
        """Return the next name as written; in lower case unless it is in backticks."""
        word = self._words[self._next]
        if word.kind not in ("word", "name"):
            raise self.wrong(expected)
        self._next += 1
        return word.text if word.kind == "name" else word.text.lower()

    def word(self, expected: str) -> str:
        """Return the next word in upper case."""
        word = self._words[self._next]
        if word.kind != "word":
            raise self.wrong(expected)
        self._next += 1
        return word.text.upper()

    def text(self, expected: str) -> str:
        return self._of("text", expected)

    def number(self, expected: str) -> int:
        digits = self._of("number", expected)
        if not digits.isdigit():
            raise SqlSyntaxError(f"bad SQL: {expected}", expected="a whole number", found=digits)
        return int(digits)

    def literal(self, expected: str) -> str:
        """Return a text or a number, with its sign, as it is written."""
        sign = "-" if self.accept("-") else ""
        word = self._words[self._next]
        if word.kind not in ("text", "number") or (sign and word.kind == "text"):
            raise self.wrong(expected)
        self._next += 1
        return sign + word.text

    def names(self, expected: str) -> tuple[str, ...]:
        """Parse `(a, b, …)`."""
        self.expect("(")
        names = [self.name(expected)]
        while self.accept(","):
            names.append(self.name(expected))
        self.expect(")")
        return tuple(names)

    def ended(self) -> bool:
        """Return True if nothing but a semicolon comes."""
        self.accept(";")
        return self._words[self._next].kind == "end"

    def end(self) -> None:
        if not self.ended():
            raise self.unsupported()

    def wrong(self, expected: str) -> QueryError:
        return SqlSyntaxError(f"bad SQL: {expected} is missing", found=self._coming())

    def unsupported(self, expected: str | None = None) -> QueryError:
        return UnsupportedSql(f"unsupported SQL: {self._coming()}", expected=expected)

    def _of(self, kind: WordKind, expected: str) -> str:
        word = self._words[self._next]
        if word.kind != kind:
            raise self.wrong(expected)
        self._next += 1
        return word.text

    def _coming(self) -> str:
        word = self._words[self._next]
        return "the end" if word.kind == "end" else repr(self._sql[word.at : word.at + _SHOWN])


def _split(sql: str) -> list[Word]:
    try:
        tokens = sqlglot.tokenize(sql, dialect="doris")
    except SqlglotError as error:
        raise SqlSyntaxError(f"bad SQL: {str(error).splitlines()[0]}") from error
    words: list[Word] = []
    for token in tokens:
        kind = _KINDS.get(token.token_type)
        if kind is not None:
            words.append(Word(kind, token.text, token.start))
            continue
        for part in token.text.split():  # some keywords are two words in one token
            is_word = part.replace("_", "a").isalnum()
            words.append(Word("word" if is_word else "mark", part, token.start))
    return [*words, Word("end", "", len(sql))]
