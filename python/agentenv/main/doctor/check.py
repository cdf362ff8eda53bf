"""What a check is, and how checks run: side by side, each bounded in time, a broken one being a finding too."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from agentenv.base import log
from agentenv.base.errors import AgentEnvError

_log = log.get("doctor")


class State(StrEnum):
    """How a part of the host is. A server cannot work while one is `missing`."""

    OK = "ok"
    WARNING = "warning"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the doctor's answer. `key` is stable; `remedy` says what to do, and is empty when all is well."""

    key: str
    state: State
    value: str
    remedy: str = ""


# One examination may answer several questions.
Examination = Callable[[], Awaitable[Sequence[Check]]]


@dataclass(frozen=True, slots=True)
class Question:
    """An examination, the key under which its own failure is reported, and whether a server needs the answer."""

    key: str
    examine: Examination
    is_required: bool = True
    timeout_seconds: float = 20


async def answer(questions: Sequence[Question]) -> list[Check]:
    """Run all examinations side by side and return their checks in the order of the questions."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_answer_one(question)) for question in questions]
    return [check for task in tasks for check in task.result()]


async def _answer_one(question: Question) -> Sequence[Check]:
    state = State.MISSING if question.is_required else State.WARNING
    try:
        async with asyncio.timeout(question.timeout_seconds):
            return await question.examine()
    except TimeoutError:
        return [Check(question.key, state, f"no answer within {question.timeout_seconds:g} s", "try again")]
    except AgentEnvError as error:
        return [Check(question.key, state, error.message, "see the message")]
    except Exception as error:  # noqa: BLE001 - a doctor who falls silent helps nobody; the log has the whole story
        _log.exception("doctor_check_failed", key=question.key)
        return [Check(question.key, state, f"the check itself failed: {error!r}", "report this with the log")]
