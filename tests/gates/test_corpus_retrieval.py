"""Gate: a labelled corpus of questions and their answering passages, with a floor on passage
recall@3 and a ceiling on noise ratio.

Recall is the share of answerable questions for which a returned passage contains an answering
quote. Noise is the share of returned passages that contain none, over all questions: a question
without an answer should get nothing. Both are of the search as it is by default, and neither is
read without the other.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from typing import Final

import pytest
from django.utils import timezone

from knowledge.core.types import KnowledgeQuery, OmittedReason
from knowledge.wiring import store
from tests.corpus.loader import WRITTEN, Kind, LabelledQuestion, documents, questions
from tests.support import admit, principal

# Just under and just over what is measured.
RECALL_FLOOR: Final = 0.80
NOISE_CEILING: Final = 0.56
SILENCE_FLOOR: Final = 0.57


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a question got: for each returned passage, whether it answers."""

    question: LabelledQuestion
    answering: tuple[bool, ...]
    notes: str

    @property
    def found(self) -> bool:
        return any(self.answering)


@dataclass(frozen=True, slots=True)
class Measured:
    answers: tuple[Answer, ...]

    def of(self, kinds: Iterable[Kind]) -> Measured:
        wanted = set(kinds)
        return Measured(tuple(one for one in self.answers if one.question.kind in wanted))

    @property
    def recall(self) -> float:
        return _share([one.found for one in self.answers if one.question.quotes])

    @property
    def noise(self) -> float:
        return _share([not hit for one in self.answers for hit in one.answering])

    @property
    def silence(self) -> float:
        """The share of unanswerable questions that get no passage."""
        return _share([not one.answering for one in self.answers if not one.question.quotes])

    def __str__(self) -> str:
        lines = [f"{'kind':<14}{'asked':>6}{'recall@3':>10}{'noise':>8}{'silence':>9}"]
        for name, kinds in [*((kind.value, [kind]) for kind in Kind), ("all", list(Kind))]:
            part = self.of(kinds)
            recall = f"{part.recall:.3f}" if kinds != [Kind.UNANSWERABLE] else "-"
            silence = f"{part.silence:.3f}" if Kind.UNANSWERABLE in kinds else "-"
            asked = len(part.answers)
            lines.append(f"{name:<14}{asked:>6}{recall:>10}{part.noise:>8.3f}{silence:>9}")
        for one in self.answers:
            if one.question.quotes and not one.found:
                lines.append(f"missed {one.question.id}: {one.question.text} [{one.notes}]")
            elif one.answering and not one.question.quotes:
                lines.append(f"answered {one.question.id}: {one.question.text} [{one.notes}]")
        return "\n".join(lines)


def _share(values: list[bool]) -> float:
    return sum(values) / len(values) if values else 0.0


def _admit_the_corpus(today: date) -> None:
    for document in documents():
        admit(
            document.text,
            filename=document.id,
            media_type=document.media_type,
            title=document.title,
            # As old as it was when the corpus takes place, so that the figures do not age.
            doc_date=document.doc_date and document.doc_date + (today - WRITTEN),
        )


def _asked(question: LabelledQuestion) -> Answer:
    result = store().search(KnowledgeQuery(text=question.text), principal())
    passages = result.passages
    floored = sum(1 for one in result.omitted if one.reason is OmittedReason.FLOOR)
    return Answer(
        question=question,
        answering=tuple(question.is_answered_by(one.candidate.text) for one in passages),
        notes=f"best {passages[0].score:.3f}" if passages else f"{floored} below the floor",
    )


@pytest.mark.django_db
@pytest.mark.usefixtures("blob_root")
def test_questions_find_their_passages_and_little_else() -> None:
    _admit_the_corpus(timezone.now().date())
    measured = Measured(tuple(_asked(question) for question in questions()))

    # By kind and question. Shown with a failure, and by `pytest -rP` when all is well.
    print(measured)
    assert measured.recall >= RECALL_FLOOR, "passage recall@3 fell: see the output"
    assert measured.noise <= NOISE_CEILING, "the noise ratio rose: see the output"
    assert measured.silence >= SILENCE_FLOOR, "what has no answer is answered: see the output"
