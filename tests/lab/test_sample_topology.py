"""The sample topology: article and topic pairs are those of a batch join on the term."""

from __future__ import annotations

import numpy as np
import pytest

from lab.sample_topology import Article, Topic, articles_by_topic

WORDS = "rain sun wind storm flood frost heat drought snow fog".split()  # noqa: SIM905


@pytest.mark.parametrize("tasks", [1, 4])
@pytest.mark.parametrize("seed", range(5))
def test_f40_pairs_are_those_of_a_batch_join_on_the_term(seed, tasks):
    rng = np.random.default_rng(seed)
    articles = [
        Article(float(rng.uniform(0, 10)), n, " ".join(rng.choice(WORDS, int(rng.integers(1, 6))))) for n in range(15)
    ]
    topics = [Topic(float(rng.uniform(0, 10)), n, str(rng.choice([*WORDS, "hail"]))) for n in range(12)]
    batch = sorted((a.id, t.id) for a in articles for t in topics if t.term in a.text.split())
    assert articles_by_topic(articles, topics, tasks) == batch != []


def test_f40_a_term_that_an_article_has_twice_makes_one_pair():
    assert articles_by_topic([Article(1.0, 1, "Rain. Rain!")], [Topic(0.0, 9, "rain")]) == [(1, 9)]
