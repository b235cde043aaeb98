"""The sample topology of the thesis (Fig 2.1): articles are parsed into terms, and meet trending topics by term."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from lab.multi_way_simulation import simulate
from lab.multi_way_topology import Input, Row, Topology
from penstock.operators.multi_way import Plan


class Article(NamedTuple):
    """A piece of news."""

    time: float
    id: int
    text: str


class Topic(NamedTuple):
    """A term that trends."""

    time: float
    id: int
    term: str


PLAN = Plan.parse("article topic", ["article.term = topic.term"])
"""Join Articles by Topics."""

_IDS = {"article": ("id", "term"), "topic": ("id",)}
_KEY_BYTES = {"article": 16.0, "topic": 16.0}
_MARKS = ".,;:!?()"


def parse_terms(article: Article) -> Iterator[tuple[str, int]]:
    """The Term Parser bolt: each term of an article once, with the article's id.

    >>> [*parse_terms(Article(0.0, 7, "Rain, and more rain"))]
    [('rain', 7), ('and', 7), ('more', 7)]
    """
    words = (word.strip(_MARKS).lower() for word in article.text.split())
    yield from ((term, article.id) for term in dict.fromkeys(words) if term)


def articles_by_topic(articles: Iterable[Article], topics: Iterable[Topic], tasks: int = 1) -> list[tuple[int, int]]:
    """Run the topology: pairs of an article and a topic, by id.

    >>> articles_by_topic([Article(0.0, 1, "rain again")], [Topic(1.0, 5, "rain"), Topic(2.0, 6, "sun")])
    [(1, 5)]
    """
    inputs = [
        Input(article.time, "article", Row((id, term), {"id": id, "term": term}, float(len(article.text))))
        for article in articles
        for term, id in parse_terms(article)
    ]
    inputs += [Input(each.time, "topic", Row((each.id,), {"id": each.id, "term": each.term}, 0.0)) for each in topics]
    run = Topology(PLAN, _IDS, _KEY_BYTES, order=(), carried=frozenset(PLAN.rels), tasks=tasks)
    ordered = sorted(inputs, key=lambda each: each.time)
    return sorted((article[0], topic[0]) for article, topic in simulate(run, ordered).rids)
