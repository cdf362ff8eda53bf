"""Reads answers of the other side, which are untrusted JSON, field by field.

What is missing or of the wrong type becomes `AnswerInvalid`; unknown fields are left alone, as the contract says.
"""

import base64
import binascii
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NoReturn

from agentenv.client.errors import AnswerInvalid


@dataclass(frozen=True, slots=True)
class Document:
    """A JSON object and the name it has in error messages."""

    fields: dict[str, object]
    name: str

    def text(self, key: str) -> str:
        """Return a string that must be there."""
        value = self.fields.get(key)
        return value if isinstance(value, str) else self._refuse(key, "a string")

    def optional_text(self, key: str) -> str | None:
        """Return a string; None when it is absent, null or empty, which the contract treats alike."""
        value = self.fields.get(key)
        if value is None or value == "":
            return None
        return value if isinstance(value, str) else self._refuse(key, "a string")

    def integer(self, key: str, default: int | None = None) -> int:
        """Return a whole number; it must be there when there is no default."""
        value = self.fields.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int):
            return self._refuse(key, "a whole number")
        return value

    def moment(self, key: str) -> datetime:
        """Return an RFC 3339 time that must be there."""
        try:
            moment = datetime.fromisoformat(self.text(key))
        except ValueError:
            return self._refuse(key, "a time")
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)

    def texts(self, key: str) -> dict[str, str]:
        """Return a map of strings; an absent one is empty."""
        value = self.fields.get(key)
        if value is None:
            return {}
        if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
            return self._refuse(key, "a map of strings")
        return value

    def list_of_texts(self, key: str) -> list[str]:
        """Return an array of strings that must be there."""
        value = self.fields.get(key)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            return self._refuse(key, "an array of strings")
        return value

    def content(self, key: str) -> bytes | None:
        """Return base64 bytes; None when the field is absent."""
        value = self.optional_text(key)
        try:
            return None if value is None else base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            return self._refuse(key, "base64")

    def part(self, key: str) -> "Document | None":
        """Return the object inside; None when it is absent."""
        value = self.fields.get(key)
        if value is None:
            return None
        return Document(value, f"{self.name}.{key}") if isinstance(value, dict) else self._refuse(key, "an object")

    def _refuse(self, key: str, expected: str) -> NoReturn:
        raise AnswerInvalid(f"field {key!r} of the {self.name} in the server's answer is not {expected}")


def parse_object(content: bytes, name: str) -> Document:
    """Return the JSON object in `content`."""
    return as_object(_parse(content, name), name)


def parse_objects(content: bytes, name: str) -> list[Document]:
    """Return the JSON array of objects in `content`; `name` is what one of them is."""
    value = _parse(content, f"list of {name}")
    if not isinstance(value, list):
        raise AnswerInvalid(f"the server's answer is not a list of {name}")
    return [as_object(item, name) for item in value]


def as_object(value: object, name: str) -> Document:
    """Return a parsed value as an object."""
    if not isinstance(value, dict):
        raise AnswerInvalid(f"the {name} in the server's answer is not a JSON object")
    return Document(value, name)


def _parse(content: bytes, name: str) -> object:
    try:
        value: object = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise AnswerInvalid(f"the server's answer is not JSON where the {name} should be") from error
    return value
